#include "base/os/written_bytes.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "base/os/files.h"
#include "temporary_directory.h"

using namespace moorage;

namespace {

constexpr size_t kBytes = 1 << 20;

// Writes, reports it, then waits until `go_on` is closed.
pid_t write_and_wait(const std::string& path, int said, int go_on) {
  const pid_t child = fork();
  if (child != 0) return child;
  const std::string text(kBytes, 'x');
  const int file = open(path.c_str(), O_WRONLY | O_CREAT, 0600);
  const bool wrote = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  char byte = wrote ? 'y' : 'n';
  if (write(said, &byte, 1) != 1 || read(go_on, &byte, 1) < 0) _exit(1);
  _exit(0);
}

}  // namespace

TEST_CASE("a child's written bytes count while it lives, and then in its parent") {
  // tmpfs has no pages that are written back.
  const std::string path = "/var/tmp/moorage-written-" + std::to_string(getpid());
  int said[2];
  int go_on[2];
  REQUIRE(pipe2(said, O_CLOEXEC) == 0);
  REQUIRE(pipe2(go_on, O_CLOEXEC) == 0);
  const uint64_t before = base::written_bytes(getpid());
  const pid_t child = write_and_wait(path, said[1], go_on[0]);
  char byte = 0;
  REQUIRE(read(said[0], &byte, 1) == 1);
  REQUIRE(byte == 'y');
  CHECK(base::written_bytes(child) >= kBytes);
  const auto tree = base::process_tree(getpid(), 4096);
  CHECK(std::count(tree.begin(), tree.end(), child) == 1);
  CHECK(base::process_tree(getpid(), 1).size() == 1);
  REQUIRE(write(go_on[1], "y", 1) == 1);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(base::written_bytes(getpid()) >= before + kBytes);
  CHECK(base::written_bytes(child) == 0);
  unlink(path.c_str());
  for (const int fd : {said[0], said[1], go_on[0], go_on[1]}) close(fd);
}
