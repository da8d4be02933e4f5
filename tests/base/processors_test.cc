#include "base/os/processors.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <map>

using namespace moorage::base;

TEST_CASE(
    "a limit of processors is rounded up, and chooses none unless it is below the host's number") {
  const Processors host{0, 1, 2, 3};
  CHECK(choose_processors(host, 0.5, {}).size() == 1);
  CHECK(choose_processors(host, 1, {}).size() == 1);
  CHECK(choose_processors(host, 1.5, {}).size() == 2);
  CHECK(choose_processors(host, 3, {}).size() == 3);
  CHECK(choose_processors(host, 3.5, {}).empty());
  CHECK(choose_processors(host, 4, {}).empty());
  CHECK(choose_processors(host, 1000, {}).empty());
  CHECK(choose_processors(host, 0, {}).empty());
}

TEST_CASE("sandboxes spread over the processors, also after some of them ended") {
  const Processors host{0, 1, 2, 3, 6, 7};  // 4 and 5 are for others
  std::vector<Processors> used;
  std::map<int, int> users;
  for (int i = 0; i < 12; ++i) used.push_back(choose_processors(host, 1.5, used));
  for (const auto& each : used) {
    REQUIRE(each.size() == 2);
    for (int number : each) ++users[number];
  }
  for (int number : host) CHECK(users[number] == 4);
  CHECK(users.size() == host.size());
  const Processors ended = used[3];
  used.erase(used.begin() + 3);
  CHECK(choose_processors(host, 2, used) == ended);
}

TEST_CASE("a list of processors is written and read as the kernel does") {
  CHECK(processors_text({0}) == "0");
  CHECK(processors_text({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8");
  CHECK(parse_processors("0-2,5,7-8\n") == Processors{0, 1, 2, 5, 7, 8});
  CHECK(parse_processors("").empty());
  CHECK(parse_processors("x,3").size() == 1);
  CHECK(parse_processors("0-99999999").size() == 8192);
}

TEST_CASE("a process and its children keep to the processors that were set from outside") {
  const Processors all = processors_of(0);
  REQUIRE_FALSE(all.empty());
  const Processors last{all.back()};
  int wait_pipe[2];
  REQUIRE(pipe(wait_pipe) == 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    if (read(wait_pipe[0], &byte, 1) != 1) _exit(2);
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(processors_of(0) == last ? 0 : 1);
    int status = 0;
    waitpid(grandchild, &status, 0);
    _exit(WEXITSTATUS(status));
  }
  keep_to_processors(child, last);
  CHECK(processors_of(child) == last);
  REQUIRE(write(wait_pipe[1], "x", 1) == 1);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(processors_of(child).empty());
  keep_to_processors(child, last);
  keep_to_processors(0, {8000});
  CHECK(processors_of(0) == all);
  close(wait_pipe[0]);
  close(wait_pipe[1]);
}
