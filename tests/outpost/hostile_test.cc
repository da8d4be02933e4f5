// Streams that break the rules, older generations, other users, and commands that look around.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <catch2/catch.hpp>

#include "base/os/files.h"
#include "base/wire/text_stream.h"
#include "machine.h"
#include "thrown_code.h"

using namespace moorage;
using namespace moorage::test;

TEST_CASE("a stream that breaks the rules ends, and the sandbox goes on") {
  const Machine machine(kNobody);
  Link good(machine);
  good.hello();
  good.prepare_and_start();
  const std::string frame =
      GENERATE(as<std::string>{}, std::string(100, '\xff'),
               std::string("\x02\0\0\0\x09\0\0\0\x01\0\0\0x", 13),
               std::string("\x01\0\0\0\x01\0\0\0\xff\xff\xff\x7f", 12),
               std::string("\x01\0\0\0\x01\0\0\0\0\0\0\0", 12),
               std::string("\x01\0\0\0\x01\0\0\0\x01\0\0\0{"
                           "\x02\0\0\0\x01\0\0\0\x01\0\0\0x\x03\0\0\0\x01\0\0\0\x01\0\0\0x",
                           39));
  {
    Link bad(machine);
    bad.raw(frame);
    CHECK(bad.ended());
  }
  CHECK(good.run("ex_1", "echo alive") == "alive\n");
}

TEST_CASE("a stream of text lines carries the same requests") {
  const Machine machine(kNobody);
  base::TextEncoder encoder(base::TextDirection::to_program);
  base::TextDecoder decoder(base::TextDirection::from_program);
  base::Mux mux(base::Mux::Side::opener);
  mux.open(json::serialize(json::object{
      {"what", "hello"}, {"protocol", {{"oldest", 1}, {"newest", 1}}}, {"generation", 1}}));
  // The answer comes before the end, so this waits for it.
  const std::string input = encoder.encode(mux.output());
  const std::string output = machine.talk(
      {"connect", "--dir", machine.directory(), "--name", "sb_1", "--generation", "1", "--text"},
      input, encoder.end());
  std::string bytes;
  decoder.decode(output, bytes);
  CHECK(decoder.ended());
  CHECK_THAT(bytes, Catch::Contains("\"overlay\":\"user\""));
}

TEST_CASE("a machine that lost the warden is one without our programs") {
  const Machine machine(kNobody);
  const std::string warden = machine.program("moorage-warden");
  const std::string aside = warden + ".aside";
  REQUIRE(rename(warden.c_str(), aside.c_str()) == 0);
  machine.run({"connect", "--dir", machine.directory(), "--name", "sb_1", "--generation", "1"},
              127);
  CHECK(machine.serve("sb_1") == 0);
  REQUIRE(rename(aside.c_str(), warden.c_str()) == 0);
  Link link(machine);
  link.hello();
}

TEST_CASE("requests that make no sense are answered with what is wrong") {
  const Machine machine(kNobody);
  Link link(machine);
  CHECK(code_thrown_by([&] { link.call({{"what", "start"}}); }) == Code::permission_denied);
  link.hello();
  CHECK(code_thrown_by([&] { link.call({{"what", "dance"}}); }) == Code::unsupported);
  CHECK(code_thrown_by([&] { link.call({{"hello", 1}}); }) == Code::invalid_argument);
  CHECK(code_thrown_by([&] { link.call({{"what", "start"}}); }) == Code::conflict);
  CHECK(code_thrown_by([&] { link.sync(0); }) == Code::conflict);
  CHECK(code_thrown_by([&] { link.call({{"what", "http"}}); }) == Code::unavailable);
  for (const char* name : {"../../x", "", "a/b", ".", ".."}) {
    CAPTURE(name);
    CHECK(code_thrown_by([&] {
            link.call({{"what", "has_tree"}, {"key", name}});
          }) == Code::invalid_argument);
    CHECK(code_thrown_by([&] {
            link.call({{"what", "journal"}, {"tag", name}, {"offset", 0}});
          }) == Code::invalid_argument);
  }
  CHECK(code_thrown_by([&] {
          link.call(
              {{"what", "prepare"}, {"tree", "missing"}, {"objects", ""}, {"certificates", ""}});
        }) == Code::not_found);
  CHECK(link.hello().at("usable").as_bool());
}

TEST_CASE("another generation gets nothing, and the newest link takes over") {
  const Machine machine(kNobody);
  Link first(machine, 5);
  first.hello(5);
  first.prepare_and_start();
  for (const uint64_t other : {4, 6}) {
    Link link(machine, other);
    CHECK(code_thrown_by([&] { link.hello(other); }) == Code::conflict);
    CHECK(code_thrown_by([&] { link.call({{"what", "start"}}); }) == Code::permission_denied);
  }
  CHECK(first.run("ex_1", "echo mine") == "mine\n");
  Link second(machine, 5);
  second.hello(5);
  CHECK(first.ended());
  CHECK(second.run("ex_2", "echo mine") == "mine\n");
}

TEST_CASE("a command sees neither the directory nor another sandbox") {
  const uid_t user = GENERATE(kRoot, kNobody);
  const Machine machine(user);
  Link one(machine);
  Link two(machine, 1, "sb_2");
  for (Link* link : {&one, &two}) {
    link->hello();
    link->prepare_and_start();
  }
  one.start("sleeper", "sleep 1000");
  one.run("secret", "echo secret >/workspace/s; echo secret >/tmp/s; chmod 777 /workspace /tmp/s");
  const std::string who = user == kRoot ? "root" : "user";
  CHECK(two.run("ex_1",
                "ls -A /workspace /tmp; cat /tmp/s; ls -d " + machine.directory() +
                    " /var/tmp/moorage*; find / -xdev -name 'sb_*'; true",
                who)
            .find("secret") == std::string::npos);
  const std::string processes = two.run("ex_2", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '", who);
  CHECK(processes.find("sleep 1000") == std::string::npos);
  CHECK(processes.find("moorage-outpost") == std::string::npos);
  // The spool and the sockets are open in the warden alone.
  CHECK(two.run("ex_3",
                "ls /proc/1/fd 2>&1 | grep -c denied; cat /proc/1/mem 2>&1 | grep -c denied",
                who) == "1\n1\n");
  CHECK(two.run("ex_4", "mount -t tmpfs x /tmp 2>/dev/null || echo refused", who) == "refused\n");
  CHECK(two.run("ex_5",
                "touch /usr/x /etc/x 2>/dev/null; ls /usr/x /etc/x 2>/dev/null; umount /workspace "
                "2>/dev/null || echo held",
                who) == "held\n");
  CHECK(two.run("ex_6", "for f in /proc/net/dev; do tail -n +3 $f | cut -d: -f1; done", who)
            .find("lo") != std::string::npos);
  CHECK(two.run("ex_8",
                "grep ^Seccomp: /proc/self/status; unshare -U true 2>/dev/null || echo refused; "
                "grep ^NoNewPrivs /proc/self/status",
                who) == "Seccomp:\t2\nrefused\nNoNewPrivs:\t1\n");
  CHECK(two.run("ex_7", "kill -9 1; echo alive", who) == "alive\n");
}

TEST_CASE("a directory that others may enter is refused") {
  const Machine machine(kNobody);
  REQUIRE(chmod(machine.directory().c_str(), 0755) == 0);
  {
    Link link(machine);
    CHECK(link.ended());
  }
  REQUIRE(chmod(machine.directory().c_str(), 0700) == 0);
  REQUIRE(chown(machine.directory().c_str(), 12345, 12345) == 0);
  {
    Link link(machine);
    CHECK(link.ended());
  }
  REQUIRE(chown(machine.directory().c_str(), machine.user(), machine.user()) == 0);
  CHECK_FALSE(base::path_exists(machine.sandbox()));
}

TEST_CASE("sandboxes and trees can be listed, removed and cleaned away") {
  const uid_t user = GENERATE(kRoot, kNobody);
  const Machine machine(user);
  const auto listed = [&] {
    return json::parse(machine.run({"list", "--dir", machine.directory()}));
  };
  Link link(machine, 3);
  link.hello(3);
  for (const char* key : {"used", "unused"})
    link.call_with({{"what", "put_tree"}, {"key", key}, {"more", false}},
                   PackText().directory("tree").file("tree/x", "x").finish());
  link.prepare_and_start("used");
  // Nobody but their owner may enter these; the owner of the machine removes them all the same.
  link.run("ex_1", "mkdir -p d/e; touch d/e/f; chmod 000 d/e d; chmod 000 /workspace");
  json::value now = listed();
  CHECK(now.at("sandboxes").as_array().size() == 1);
  CHECK(now.at("sandboxes").at(0).at("name").as_string() == "sb_1");
  CHECK(now.at("sandboxes").at(0).at("generation").as_int64() == 3);
  CHECK(now.at("sandboxes").at(0).at("started").as_bool());
  CHECK(now.at("trees").as_array().size() == 2);
  machine.run({"clean", "--dir", machine.directory()});
  now = listed();
  REQUIRE(now.at("trees").as_array().size() == 1);
  CHECK(now.at("trees").at(0).at("key").as_string() == "used");
  CHECK(read_pack(link.sync(0)).entries.contains("tree/d/e/f"));
  machine.run({"remove", "--dir", machine.directory(), "--name", "sb_1"});
  CHECK(link.ended());
  CHECK(eventually([&] { return machine.processes().empty(); }));
  machine.run({"remove", "--dir", machine.directory(), "--name", "sb_1"});
  CHECK(listed().at("sandboxes").as_array().empty());
  machine.run({"clean", "--dir", machine.directory()});
  CHECK(base::list_directory_if_exists(machine.directory()).empty());
}
