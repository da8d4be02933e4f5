// kill -9 of each process at random moments: nothing is lost, doubled, or left behind.
#include <signal.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

#include "base/os/files.h"
#include "machine.h"
#include "thrown_code.h"

using namespace moorage;
using namespace moorage::test;

namespace {

int rounds() { return std::getenv("MOORAGE_TEST_LONG") ? 200 : 12; }

// A new stream. The process that was killed may have taken the first one with it.
std::unique_ptr<Link> greeted(const Machine& machine) {
  std::unique_ptr<Link> link;
  REQUIRE(eventually([&] {
    try {
      link = std::make_unique<Link>(machine);
      link->hello();
      return true;
    } catch (const Error& error) {
      REQUIRE(error.code() == Code::unavailable);
      return false;
    }
  }));
  return link;
}

// A journal as moorage-link keeps it: whole frames only, continued at its size.
class Copy {
 public:
  // False if the stream broke.
  bool follow(Link& link, const std::string& tag) {
    const uint32_t channel =
        link.open({{"what", "journal"}, {"tag", tag}, {"offset", bytes_.size()}});
    std::string part;
    try {
      link.wait(
          channel,
          [&](const std::string& text) {
            part = text;
            return false;
          },
          300ms);
    } catch (const Error& error) {
      if (error.code() != Code::unavailable && error.code() != Code::deadline_exceeded) throw;
    }
    take(part);
    return !read_journal(bytes_).ended;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void take(const std::string& part) {
    size_t at = 0;
    while (at + 32 <= part.size()) {
      const auto byte = [&](size_t i) { return static_cast<unsigned char>(part[at + 8 + i]); };
      const size_t size = 32 + byte(0) + 256u * byte(1) + 65536u * byte(2);
      if (at + size > part.size()) break;
      at += size;
    }
    bytes_ += part.substr(0, at);
  }
  std::string bytes_;
};

}  // namespace

TEST_CASE("commands go on without serve, and their output arrives whole and once") {
  const Machine machine(GENERATE(kRoot, kNobody));
  std::mt19937 random(Catch::rngSeed());
  auto link = std::make_unique<Link>(machine);
  link->hello();
  link->prepare_and_start();
  constexpr int kLines = 300;
  link->start("ex_1", "i=0; while [ $i -lt " + std::to_string(kLines) +
                          " ]; do echo line $i; echo $i >n; "
                          "i=$((i+1)); sleep 0.004; done");
  const pid_t one = machine.process_one();
  Copy copy;
  for (int round = 0; round < rounds(); ++round) {
    std::thread killer(
        [&, pause = std::chrono::milliseconds(random() % 200), which = random() % 3] {
          std::this_thread::sleep_for(pause);
          if (which != 0) kill(link->connector(), SIGKILL);
          const pid_t serve = machine.serve();
          if (which != 1 && serve > 0) kill(serve, SIGKILL);
        });
    copy.follow(*link, "ex_1");
    killer.join();
    link = greeted(machine);
  }
  while (copy.follow(*link, "ex_1")) {
  }
  std::string expected;
  for (int line = 0; line < kLines; ++line) expected += "line " + std::to_string(line) + "\n";
  CHECK(read_journal(copy.bytes()).output == expected);
  CHECK(machine.process_one() == one);
  CHECK(read_pack(link->sync(0)).entries.at("tree/n").content == std::to_string(kLines - 1) + "\n");
}

TEST_CASE("a serve killed in the middle of its work leaves nothing half done") {
  const Machine machine(GENERATE(kRoot, kNobody));
  std::mt19937 random(Catch::rngSeed() + 1);
  uint64_t applied = 0;
  for (int round = 0; round < rounds(); ++round) {
    CAPTURE(round);
    Link link(machine);
    bool killed = false;
    try {
      link.hello();
      std::thread killer([&, pause = std::chrono::microseconds(random() % 60'000)] {
        std::this_thread::sleep_for(pause);
        const pid_t serve = machine.serve();
        killed = serve > 0 && kill(serve, SIGKILL) == 0;
      });
      try {
        link.call({{"what", "prepare"}, {"tree", ""}, {"objects", ""}, {"certificates", ""}});
        link.call_with({{"what", "apply"}, {"seq", applied + 1}},
                       PackText().file("tree/n", std::to_string(applied + 1) + "\n").finish());
        ++applied;
        link.call({{"what", "start"}});
        link.sync(0);
      } catch (const Error&) {
      }
      killer.join();
    } catch (const Error&) {
    }
    // At most one process 1, and it is the recorded one.
    CHECK(eventually([&] {
      size_t inside = 0;
      for (const pid_t pid : machine.processes())
        inside += base::read_file_if_exists("/proc/" + std::to_string(pid) + "/cmdline")
                      .value_or("")
                      .find("connect") == std::string::npos;
      return inside <= 2;
    }));
  }
  const auto last = greeted(machine);
  Link& link = *last;
  link.call({{"what", "prepare"}, {"tree", ""}, {"objects", ""}, {"certificates", ""}});
  link.call_with({{"what", "apply"}, {"seq", applied + 1}},
                 PackText().file("tree/n", std::to_string(applied + 1) + "\n").finish());
  link.prepare_and_start();
  CHECK(link.run("ex_last", "cat n") == std::to_string(applied + 1) + "\n");
}

TEST_CASE("a sandbox of an earlier boot is not used again") {
  const Machine machine(kNobody);
  Link link(machine);
  link.hello();
  link.prepare_and_start();
  const std::string file = machine.sandbox() + "/prepared.json";
  json::object prepared = json::parse(base::read_file(file)).as_object();
  prepared["boot"] = "another";
  base::write_file(file, json::serialize(prepared), 0644);
  CHECK(code_thrown_by([&] { link.hello(); }) == Code::not_found);
}

TEST_CASE("process 1 that a sync made again does not pass for the one that was killed") {
  const Machine machine(GENERATE(kRoot, kNobody));
  Link link(machine);
  link.hello();
  link.prepare_and_start();
  link.start("ex_1", "echo out; sleep 1000");
  const uint32_t channel = link.open({{"what", "journal"}, {"tag", "ex_1"}, {"offset", 0}});
  link.wait(channel, [](const std::string& text) { return read_journal(text).output == "out\n"; });
  REQUIRE(kill(machine.process_one(), SIGKILL) == 0);
  link.sync(0);
  CHECK_FALSE(read_journal(link.finish(channel)).ended);
  CHECK_FALSE(link.hello().at("started").as_bool());
  CHECK(code_thrown_by([&] { link.finish(link.open({{"what", "http"}})); }) == Code::unavailable);
}

TEST_CASE("process 1 killed: its commands are over, their files are not lost") {
  const Machine machine(GENERATE(kRoot, kNobody));
  Link link(machine);
  link.hello();
  link.prepare_and_start();
  link.start("ex_1", "echo kept >f; echo out; sleep 1000");
  const uint32_t channel = link.open({{"what", "journal"}, {"tag", "ex_1"}, {"offset", 0}});
  link.wait(channel, [](const std::string& text) { return read_journal(text).output == "out\n"; });
  REQUIRE(kill(machine.process_one(), SIGKILL) == 0);
  const JournalText text = read_journal(link.finish(channel));
  CHECK(text.output == "out\n");
  CHECK_FALSE(text.ended);
  CHECK_FALSE(link.hello().at("prepared").as_bool());
  CHECK(code_thrown_by([&] { link.finish(link.open({{"what", "http"}})); }) == Code::unavailable);
  CHECK(read_pack(link.sync(0)).entries.at("tree/f").content == "kept\n");
  link.prepare_and_start();
  CHECK(link.run("ex_2", "cat f") == "kept\n");
  CHECK_THAT(link.start("ex_1", "echo twice"), Catch::Contains("already_exists"));
}
