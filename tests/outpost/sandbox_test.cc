// A sandbox on another machine, from hello to destroy, as root there and as an ordinary user.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <fstream>
#include <iostream>

#include "base/os/files.h"
#include "machine.h"
#include "thrown_code.h"

using namespace moorage;
using namespace moorage::test;

TEST_CASE("a sandbox there runs a command on a tree that was sent, and its changes come back") {
  const uid_t user = GENERATE(kRoot, kNobody);
  CAPTURE(user);
  const Machine machine(user);
  Link link(machine);
  const json::object hello = link.hello();
  INFO(json::serialize(hello));
  REQUIRE(hello.at("overlay").as_string() == (user == kRoot ? "root" : "user"));
  CHECK(hello.at("pid_namespace").as_bool());
  CHECK(hello.at("root_inside").as_bool() == (user == kRoot));
  CHECK_FALSE(hello.at("sudo").as_bool());
  CHECK_FALSE(hello.at("prepared").as_bool());

  CHECK_FALSE(link.call({{"what", "has_tree"}, {"key", "k1"}}).at("has").as_bool());
  const std::string tree = PackText()
                               .directory("tree")
                               .file("tree/a.txt", "from the tree\n")
                               .directory("tree/sub")
                               .file("tree/sub/run.sh", "#!/bin/sh\necho ran\n", 0755)
                               .link("tree/sub/to_a", "../a.txt")
                               .finish();
  link.call_with({{"what", "put_tree"}, {"key", "k1"}, {"more", false}}, tree);
  CHECK(link.call({{"what", "has_tree"}, {"key", "k1"}}).at("has").as_bool());

  link.call({{"what", "prepare"}, {"tree", "k1"}, {"objects", ""}, {"certificates", ""}});
  const std::string changes = PackText()
                                  .directory("tree")
                                  .file("tree/b.txt", "from link\n")
                                  .removal("tree/sub/to_a")
                                  .link("tree/to_b", "b.txt")
                                  .pipe("tree/pipe", 0642)
                                  .directory("home")
                                  .file("home/.profile", "export X=1\n")
                                  .finish();
  link.call_with({{"what", "apply"}, {"seq", 1}}, changes);
  link.call({{"what", "start"}});
  CHECK(link.hello().at("started").as_bool());
  CHECK(
      link.run("ex_1",
               "id -u; pwd; cat a.txt b.txt ~/.profile /home/user/.profile; sub/run.sh; ls sub") ==
      "1000\n/workspace\nfrom the tree\nfrom link\nexport X=1\nexport X=1\nran\nrun.sh\n");
  CHECK(link.run("ex_1b", "cat to_b; stat -c '%F %a' pipe") == "from link\nfifo 642\n");
  CHECK(link.sync(0).empty());

  link.run("ex_2",
           "echo new >new.txt; rm a.txt; chmod 600 b.txt; mkdir d; echo deep >d/e; echo h >~/.h");
  const std::string pack = link.sync(0);
  const Changes sent = read_pack(pack);
  CHECK(sent.entries.at("tree/new.txt").content == "new\n");
  CHECK(sent.entries.at("tree/new.txt").node.uid == 1000);
  CHECK(sent.entries.at("tree/b.txt").node.mode == 0600);
  CHECK(sent.entries.at("tree/d/e").content == "deep\n");
  CHECK(sent.entries.at("home/.h").content == "h\n");
  CHECK(std::count(sent.removals.begin(), sent.removals.end(), "tree/a.txt") == 1);
  CHECK(link.sync(1).empty());

  link.call({{"what", "stop"}, {"grace_ms", 1000}});
  CHECK(machine.process_one() == 0);
  CHECK_FALSE(link.hello().at("prepared").as_bool());
  link.call({{"what", "destroy"}});
  CHECK(link.ended());
  CHECK(eventually([&] { return machine.processes().empty(); }));
  CHECK_FALSE(base::path_exists(machine.sandbox()));
  CHECK(base::read_file("/proc/self/mountinfo").find(machine.directory()) == std::string::npos);
}

TEST_CASE("a tree that was cut arrives from where it stopped, and is shared by sandboxes") {
  const Machine machine(GENERATE(kRoot, kNobody));
  constexpr int kFiles = 40;
  const auto name = [](int number) { return "tree/f" + std::to_string(100 + number); };
  const auto content = [](int number) {
    std::string text;
    for (unsigned seed = static_cast<unsigned>(number) + 7; text.size() < (64 << 10);)
      text += static_cast<char>((seed = seed * 1103515245 + 12345) >> 16);
    return text;
  };
  const auto pack = [&](int from) {
    PackText text;
    text.directory("tree");
    for (int number = from; number < kFiles; ++number) text.file(name(number), content(number));
    return text.finish();
  };
  std::string after;
  {
    Link link(machine);
    link.hello();
    const uint32_t channel = link.open({{"what", "put_tree"}, {"key", "k"}, {"more", false}});
    const std::string bytes = pack(0);
    link.send(channel, std::string_view(bytes).substr(0, bytes.size() / 2));
    json::object has;
    CHECK(eventually(
        [&] {
          has = link.call({{"what", "has_tree"}, {"key", "k"}});
          return has.contains("after") && std::string(has.at("after").as_string()) > name(10);
        },
        30s));
  }
  Link link(machine);
  link.hello();
  CHECK(code_thrown_by([&] {
          link.call({{"what", "prepare"}, {"tree", "k"}, {"objects", ""}, {"certificates", ""}});
        }) == Code::not_found);
  REQUIRE(eventually([&] {  // the killed stream's receiver says how far it came
    const json::object has = link.call({{"what", "has_tree"}, {"key", "k"}});
    REQUIRE_FALSE(has.at("has").as_bool());
    const std::string now(has.at("after").as_string());
    return std::exchange(after, now) == now;
  }));
  const int next = std::stoi(after.substr(6)) - 100 + 1;
  CHECK(next > 10);
  CHECK(next < kFiles);
  link.call_with({{"what", "put_tree"}, {"key", "k"}, {"more", false}}, pack(next));
  link.prepare_and_start("k");
  Link second(machine, 1, "sb_2");
  second.hello();
  second.prepare_and_start("k");
  std::string expected;
  for (int number = 0; number < kFiles; ++number) expected += content(number);
  const std::string sum = link.run("sum", "cat f* | cksum; ls | wc -l");
  CHECK(sum == second.run("sum", "cat f* | cksum; ls | wc -l"));
  CHECK_THAT(
      sum, Catch::Contains(" " + std::to_string(expected.size()) + "\n" + std::to_string(kFiles)));
  link.run("write", "echo mine >f100");
  CHECK(second.run("read", "head -c 4 f100 | cksum") != link.run("read", "head -c 4 f100 | cksum"));
}

TEST_CASE("a tree that was not synced yet is sent again after a restart of its machine") {
  const Machine machine(GENERATE(kRoot, kNobody));
  Link link(machine);
  link.hello();
  const auto put = [&](const std::string& content) {
    link.call_with({{"what", "put_tree"}, {"key", "k"}, {"more", false}},
                   PackText().directory("tree").file("tree/a", content).finish());
  };
  const auto has = [&] {
    return link.call({{"what", "has_tree"}, {"key", "k"}}).at("has").as_bool();
  };
  const std::string complete = machine.directory() + "/trees/k/complete";
  put("first");
  CHECK(has());
  CHECK(eventually([&] { return base::read_file(complete).empty(); }, 60s));
  CHECK(has());
  std::ofstream(complete) << "00000000-0000-0000-0000-000000000000";
  CHECK_FALSE(has());
  put("second");
  CHECK(has());
  CHECK(base::read_file(machine.directory() + "/trees/k/files/a") == "second");
}

TEST_CASE("a journal is read from any frame, followed to its end, and freed as far as it arrived") {
  const Machine machine(GENERATE(kRoot, kNobody));
  Link link(machine);
  link.hello();
  link.prepare_and_start();
  CHECK(code_thrown_by([&] {
          link.finish(link.open({{"what", "journal"}, {"tag", "none"}, {"offset", 0}}));
        }) == Code::not_found);
  link.start("ex_1", "head -c 3000000 /dev/zero; echo; sleep 0.3; echo end");
  const uint32_t channel = link.open({{"what", "journal"}, {"tag", "ex_1"}, {"offset", 0}});
  const std::string whole = link.finish(channel);
  const JournalText text = read_journal(whole);
  CHECK(text.ended);
  CHECK(text.output.size() == 3'000'005);
  const std::string path = machine.sandbox() + "/spool/ex_1";
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  const auto before = status.st_blocks;
  std::string offset(8, '\0');
  for (size_t i = 0; i < 8; ++i) offset[i] = static_cast<char>(whole.size() >> (8 * i));
  link.send(channel, offset);
  CHECK(eventually([&] { return stat(path.c_str(), &status) == 0 && status.st_blocks < 32; }));
  CHECK(before > 5000);
  link.end(channel);

  link.start("ex_2", "for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.05; done");
  const std::string all =
      link.finish(link.open({{"what", "journal"}, {"tag", "ex_2"}, {"offset", 0}}));
  for (size_t at = 0; at < all.size();) {
    const uint32_t part = link.open({{"what", "journal"}, {"tag", "ex_2"}, {"offset", at}});
    CHECK(link.finish(part) == all.substr(at));
    at += 32 + static_cast<unsigned char>(all[at + 8]) +
          256 * static_cast<unsigned char>(all[at + 9]);
  }
  CHECK(code_thrown_by([&] {
          link.finish(link.open({{"what", "journal"}, {"tag", "ex_2"}, {"offset", 5}}));
        }) == Code::corrupted);
}

TEST_CASE("a journal ends only with the late output of its command") {
  const Machine machine(GENERATE(kRoot, kNobody));
  Link link(machine);
  link.hello();
  link.prepare_and_start();
  link.start("ex_1", "(sleep 1; echo late) & echo now");
  const auto begin = std::chrono::steady_clock::now();
  CHECK(link.output("ex_1") == "now\nlate\n");
  CHECK(std::chrono::steady_clock::now() - begin > 900ms);
}

TEST_CASE("a round that was not acknowledged is repeated, together with later changes") {
  const Machine machine(GENERATE(kRoot, kNobody));
  Link link(machine);
  link.hello();
  link.prepare_and_start();
  link.run("ex_1", "echo one >one; echo gone >gone");
  CHECK(read_pack(link.sync(0)).entries.contains("tree/one"));
  link.run("ex_2", "echo two >two; rm gone");
  const Changes again = read_pack(link.sync(0));
  CHECK(again.entries.contains("tree/one"));
  CHECK(again.entries.contains("tree/two"));
  CHECK_FALSE(again.entries.contains("tree/gone"));
  CHECK(link.sync(1).empty());
  CHECK(code_thrown_by([&] { link.sync(0); }) == Code::conflict);
  CHECK(code_thrown_by([&] { link.sync(2); }) == Code::conflict);
  // Nothing that only the sandbox knows is lost by a stop and a new start.
  link.run("ex_3", "echo three >three");
  link.call({{"what", "stop"}, {"grace_ms", 0}});
  link.prepare_and_start();
  CHECK(link.run("ex_4", "cat one two three") == "one\ntwo\nthree\n");
  const Changes third = read_pack(link.sync(1));
  CHECK(third.entries.contains("tree/three"));
  CHECK_FALSE(third.entries.contains("tree/two"));
}

TEST_CASE("a journal and a sync that are asked for ahead come with the end of the command") {
  const Machine machine(GENERATE(kRoot, kNobody));
  Link link(machine);
  link.hello();
  link.prepare_and_start();
  const auto ahead = [&link](uint64_t acknowledged) {
    return link.open({{"what", "sync"}, {"acknowledged", acknowledged}, {"waits", true}});
  };
  const auto changed = [&link](uint32_t sync) {
    link.end(sync);
    const std::string bytes = link.finish(sync);
    REQUIRE(bytes.starts_with("b"));
    return bytes.size() == 1 ? Changes{}.entries : read_pack(bytes.substr(1)).entries;
  };
  const uint32_t first = ahead(0);
  const uint32_t journal =
      link.open({{"what", "journal"}, {"tag", "ex_1"}, {"offset", 0}, {"waits", true}});
  CHECK_THAT(link.start("ex_1", "echo said; echo made >one"), Catch::Contains("\"pid\""));
  CHECK(read_journal(link.finish(journal)).output == "said\n");
  CHECK(changed(first).contains("tree/one"));
  // An end that came since the last walk counts, too.
  link.run("ex_2", "echo made >two");
  CHECK(changed(ahead(1)).contains("tree/two"));
  // Without an end, a byte does.
  CHECK_THAT(link.start("ex_3", "echo made >three; exec sleep 1000"), Catch::Contains("\"pid\""));
  CHECK(eventually([&, number = uint64_t{2}]() mutable {
    const uint32_t third = ahead(number);
    link.send(third, "b");
    return changed(third).contains("tree/three");
  }));
}

TEST_CASE("the numbers of packs go on where those of an earlier sandbox ended") {
  const Machine machine(kRoot);
  Link link(machine);
  link.hello();
  link.prepare_and_start();
  CHECK(link.sync(7).empty());
  link.run("ex_1", "echo one >one");
  CHECK(read_pack(link.sync(7)).entries.contains("tree/one"));
  CHECK(code_thrown_by([&] { link.sync(6); }) == Code::conflict);
  CHECK(link.sync(8).empty());
  CHECK(code_thrown_by([&] { link.sync(7); }) == Code::conflict);
}

TEST_CASE("a pack that link sends while commands run is applied once and does not come back") {
  const Machine machine(GENERATE(kRoot, kNobody));
  Link link(machine);
  link.hello();
  link.prepare_and_start();
  const std::string first = PackText().file("tree/sent", "by link\n").finish();
  link.call_with({{"what", "apply"}, {"seq", 1}}, first);
  CHECK(link.run("ex_1", "cat sent") == "by link\n");
  CHECK(link.sync(0).empty());
  link.run("ex_2", "echo changed inside >sent");
  link.call_with({{"what", "apply"}, {"seq", 1}}, first);
  CHECK(link.run("ex_3", "cat sent") == "changed inside\n");
  CHECK(read_pack(link.sync(0)).entries.at("tree/sent").content == "changed inside\n");
  link.call_with({{"what", "apply"}, {"seq", 2}}, PackText().removal("tree/sent").finish());
  CHECK(link.run("ex_4", "ls") == "");
  CHECK(link.sync(1).empty());
  CHECK(code_thrown_by([&] {
          link.call_with({{"what", "apply"}, {"seq", 3}}, "no pack at all");
        }) == Code::corrupted);
  CHECK(code_thrown_by([&] {
          link.call_with({{"what", "apply"}, {"seq", 3}},
                         PackText().file("tree/../../escaped", "x").finish());
        }) == Code::corrupted);
}

TEST_CASE("a sandbox that was given up runs nothing more, and its last changes can be fetched") {
  const Machine machine(GENERATE(kRoot, kNobody));
  {
    Link link(machine);
    link.hello();
    link.prepare_and_start();
    link.run("ex_1", "echo arrived >arrived");
    CHECK(read_pack(link.sync(0)).entries.contains("tree/arrived"));
    link.start("ex_2", "echo late >late; rm arrived; touch ready; exec sleep 1000");
    int looks = 0;
    REQUIRE(eventually([&] {
      return link.run("look_" + std::to_string(++looks), "ls ready 2>&1 || :") == "ready\n";
    }));
    const json::object told = link.hello();
    CHECK(told.at("acknowledged").as_int64() == 0);
    CHECK(told.at("next_was_sent").as_bool());
  }
  const json::object give_up{{"what", "hello"},
                             {"protocol", {{"oldest", 1}, {"newest", 1}}},
                             {"generation", 1},
                             {"give_up", true}};
  std::string first;
  {
    Link link(machine);
    link.call(give_up);
    for (const char* refused : {"start", "http", "has_tree"}) {
      INFO(refused);
      CHECK(code_thrown_by([&] {
              link.call({{"what", refused}, {"key", "k"}});
            }) == Code::conflict);
    }
    link.call({{"what", "stop"}, {"grace_ms", 0}});
    CHECK(machine.process_one() == 0);
    first = link.sync(1);
    const Changes changes = read_pack(first);
    CHECK(changes.entries.at("tree/late").content == "late\n");
    CHECK_FALSE(changes.entries.contains("tree/arrived"));
    CHECK(changes.removals == std::vector<std::string>{"tree/arrived"});
  }
  Link link(machine);
  CHECK(code_thrown_by([&] { link.hello(); }) == Code::conflict);
  Link again(machine);
  again.call(give_up);
  CHECK(read_pack(again.sync(1)).entries.at("tree/late").content == "late\n");
  again.call({{"what", "destroy"}});
  CHECK(again.ended());
}

TEST_CASE("limits hold for all commands together, where control groups can be made") {
  const uid_t user = GENERATE(kRoot, kNobody);
  const Machine machine(user);
  Link link(machine);
  link.hello();
  const json::object facts =
      link.call({{"what", "prepare"},
                 {"tree", ""},
                 {"objects", ""},
                 {"certificates", ""},
                 {"limits", {{"memory_bytes", 64 << 20}, {"pids", 40}, {"cpu_thousandths", 500}}}});
  link.call({{"what", "start"}});
  const json::array limits = facts.at("limits").as_array();
  CHECK(link.hello().at("limits").as_array() == limits);
  if (user != kRoot) {
    CHECK(limits.empty());
    return;
  }
  if (limits != json::array{"memory", "pids", "cpus"}) {
    std::cerr << "SKIPPED: control groups cannot be made here: " << limits << "\n";
    return;
  }
  CHECK(link.run("ex_1", "head -c 200000000 /dev/zero | tail -c 200000000 | wc -c") !=
        "200000000\n");
  CHECK(link.run("ex_2", "(for i in $(seq 60); do sleep 1 & done; wait) 2>&1 | grep -c . || :") !=
        "0\n");
  CHECK(link.run("ex_3", "echo fine") == "fine\n");
}
