// Standard input and terminals.
#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <thread>

#include "base/error.h"
#include "base/os/files.h"
#include "warden_process.h"

using namespace moorage;
using namespace moorage::test;

namespace {

struct Running {
  Running(WardenProcess& warden, backends::StartRequest request, const std::string& tag)
      : journal(warden.directory() + "/" + tag), client(warden.client()), exec(tag) {
    request.tag = tag;
    request.journal_fd = journal.append_fd.get();
    pid = client.start(request, 10s);
  }
  base::Code input_refusal(uint64_t offset, std::string_view bytes) {
    try {
      client.send_input(exec, offset, bytes, 10s);
    } catch (const base::Error& error) {
      return error.code();
    }
    return base::Code::internal;
  }
  Journal journal;
  backends::EnvdClient client;
  std::string exec;
  uint32_t pid = 0;
};

backends::StartRequest reader(const std::string& script) {
  backends::StartRequest request = shell(script);
  request.input = true;
  return request;
}

std::string odd_bytes(size_t size) {
  std::string bytes(size, '\0');
  uint32_t state = 12345;
  for (char& c : bytes) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

}  // namespace

TEST_CASE("200 MB of input reach the command unchanged") {
  WardenProcess warden;
  Running running(warden, reader("sha256sum | cut -c1-64 | tr -d '\\n'"), "sum");
  std::string bytes = odd_bytes(200'000'000);
  CHECK(running.client.send_input("sum", 0, bytes, 600s).accepted == bytes.size());
  running.client.close_input("sum");
  CHECK(running.journal.wait_for_end(30s).output == sha256_hex(bytes));
}

TEST_CASE("200 MB of input to a command that discards it are accepted") {
  WardenProcess warden;
  Running running(warden, reader("cat >/dev/null"), "cat");
  std::string bytes = odd_bytes(200'000'000);
  CHECK(running.client.send_input("cat", 0, bytes, 600s).accepted == bytes.size());
  running.client.close_input("cat");
  CHECK(running.journal.wait_for_end().code() == 0);
}

TEST_CASE("input for a command that exits without reading is refused quickly") {
  WardenProcess warden;
  std::string bytes = odd_bytes(8'000'000);
  for (int round = 0; round < 20; ++round) {
    Running running(warden, reader(round % 2 ? "exit 0" : "sleep 0.02"),
                    "true" + std::to_string(round));
    auto begin = std::chrono::steady_clock::now();
    CHECK(running.input_refusal(0, bytes) == base::Code::not_found);
    CHECK(std::chrono::steady_clock::now() - begin < patient(2s));
    CHECK(running.journal.wait_for_end().code() == 0);
  }
}

TEST_CASE("input for a live command with closed standard input is a conflict") {
  WardenProcess warden;
  Running running(warden, reader("exec <&-; sleep 30"), "closed");
  std::string bytes = odd_bytes(300'000);
  CHECK(running.input_refusal(0, bytes) == base::Code::conflict);
  CHECK(running.input_refusal(bytes.size(), "x") == base::Code::conflict);
  running.client.kill_tree("closed");
  CHECK(running.journal.wait_for_end().signal() == SIGKILL);
}

TEST_CASE("a command without standard input reads and accepts none") {
  WardenProcess warden;
  Running running(warden, shell("cat; sleep 0.3"), "none");
  CHECK(running.input_refusal(0, "x") == base::Code::conflict);
  CHECK(running.journal.wait_for_end().code() == 0);
}

TEST_CASE("a retry of input with its offset never doubles it") {
  WardenProcess warden;
  // It keeps running until the last retry.
  const std::string asked = warden.directory() + "/asked";
  Running running(warden, reader("cat; until [ -e " + asked + " ]; do sleep 0.02; done"),
                  "offsets");
  backends::EnvdClient& client = running.client;
  CHECK(client.send_input("offsets", 0, "hello ", 5s).accepted == 6);
  CHECK(client.send_input("offsets", 0, "hello ", 5s).accepted == 6);
  CHECK(client.send_input("offsets", 3, "lo world", 5s).accepted == 11);
  CHECK(running.input_refusal(12, "gap") == base::Code::conflict);
  CHECK(client.send_input("offsets", 11, "", 5s).accepted == 11);
  client.close_input("offsets");
  CHECK(client.send_input("offsets", 0, "hello ", 5s).accepted == 6 + 5);
  base::write_file(asked, "");
  CHECK(running.journal.wait_for_end().output == "hello world");
}

TEST_CASE("input waits for the command, and a retry after the deadline finds it accepted") {
  WardenProcess warden;
  Running running(warden, reader("sleep 1; wc -c"), "slow");
  std::string bytes = odd_bytes(400'000);
  auto late = [&] { running.client.send_input("slow", 0, bytes, 100ms); };
  CHECK_THROWS_AS(late(), base::Error);
  CHECK(running.client.send_input("slow", 0, bytes, 10s).accepted == bytes.size());
  running.client.close_input("slow");
  CHECK(running.journal.wait_for_end().output == "400000\n");
}

TEST_CASE("a shell script of odd bytes on standard input runs as written") {
  WardenProcess warden;
  backends::StartRequest request = reader("");
  // Not dash: it reads ahead in the script and takes the input of `read`.
  request.argv = {"bash", "-s", "--", "arg \xff\n\x01"};
  Running running(warden, request, "script");
  std::string script =
      "printf '%s' \"$1\" | od -An -tx1 | tr -d ' \\n'\nprintf '\\377\\0\\033'\nread x\nnext "
      "line\necho \"[$x]\"\n";
  for (size_t at = 0; at < script.size(); ++at) {
    running.client.send_input("script", at, script.substr(at, 1), 5s);
  }
  running.client.close_input("script");
  Record record = running.journal.wait_for_end();
  CHECK(record.output == std::string("61726720ff0a01\xff\0\x1b[next line]\n", 29));
}

TEST_CASE("a terminal has the requested size and can be resized") {
  WardenProcess warden;
  backends::StartRequest request =
      shell("stty size; read x; stty size; tty; test -w $(tty) && echo mine");
  request.terminal = backends::TerminalSize{101, 37};
  request.user = "user";
  Running running(warden, request, "pty");
  REQUIRE(eventually([&] { return running.journal.read().terminal == "37 101\r\n"; }));
  running.client.resize("pty", {55, 22});
  running.client.send_input("pty", 0, "\n", 5s);
  Record record = running.journal.wait_for_end();
  CHECK_THAT(record.terminal, Catch::Contains("22 55\r\n") && Catch::Contains("/dev/pts/") &&
                                  Catch::Contains("mine"));
  CHECK(record.output.empty());
}

TEST_CASE("^C on a terminal interrupts the foreground job") {
  WardenProcess warden;
  backends::StartRequest request =
      shell("trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.1; done");
  request.terminal = backends::TerminalSize{};
  Running running(warden, request, "ctrl-c");
  REQUIRE(eventually(
      [&] { return running.journal.read().terminal.find("ready") != std::string::npos; }));
  running.client.send_input("ctrl-c", 0, "\x03", 5s);
  Record record = running.journal.wait_for_end();
  CHECK_THAT(record.terminal, Catch::Contains("caught"));
  CHECK(record.code() == 7);
}

TEST_CASE("a signal on a terminal goes to the foreground job, SIGKILL to its shell as well") {
  WardenProcess warden;
  backends::StartRequest request = shell("");
  request.argv = {"bash", "--norc", "-i"};
  request.environment["PS1"] = "$ ";
  request.terminal = backends::TerminalSize{};
  Running running(warden, request, "job");
  std::string line = "sleep 100\n";
  running.client.send_input("job", 0, line, 5s);
  auto sleeping = [&] {
    std::string children = "pgrep -P " + std::to_string(running.pid) + " sleep >/dev/null";
    return ::system(children.c_str()) == 0;
  };
  REQUIRE(eventually(sleeping));
  running.client.send_signal("job", SIGINT);
  REQUIRE(eventually([&] { return !sleeping(); }));
  running.client.send_input("job", line.size(), "echo status=$?\n", 5s);
  REQUIRE(eventually(
      [&] { return running.journal.read().terminal.find("status=130") != std::string::npos; }));
  running.client.send_signal("job", SIGKILL);
  CHECK(running.journal.wait_for_end().signal() == SIGKILL);
}

TEST_CASE("closing the input of a terminal is ^D") {
  WardenProcess warden;
  backends::StartRequest request = shell("cat; echo over");
  request.terminal = backends::TerminalSize{};
  Running running(warden, request, "eof");
  running.client.send_input("eof", 0, "line\n", 5s);
  running.client.close_input("eof");
  Record record = running.journal.wait_for_end();
  CHECK(record.terminal == "line\r\nline\r\nover\r\n");
}

TEST_CASE("a shell that starts to edit its line late sees the end of its input") {
  WardenProcess warden;
  backends::StartRequest request = shell("sleep 0.3; exec bash --norc --noprofile -i");
  request.terminal = backends::TerminalSize{};
  Running running(warden, request, "late");
  running.client.close_input("late");
  CHECK_THAT(running.journal.wait_for_end().terminal, Catch::Contains("exit"));
}

TEST_CASE("input after the end of a terminal's input ends the repeats of ^D") {
  WardenProcess warden;
  backends::StartRequest request = shell("cat; sleep 1; cat; echo over");
  request.terminal = backends::TerminalSize{};
  Running running(warden, request, "more");
  running.client.close_input("more");
  running.client.send_input("more", 0, "more\n", 5s);
  std::this_thread::sleep_for(2s);
  CHECK(running.journal.read().terminal.find("over") == std::string::npos);
  running.client.close_input("more");
  CHECK_THAT(running.journal.wait_for_end().terminal, Catch::EndsWith("more\r\nover\r\n"));
}

TEST_CASE("a terminal's last output is recorded even if a child keeps it open") {
  WardenProcess warden;
  backends::StartRequest request = shell("trap '' HUP; (sleep 5) & seq 1 5000; echo last");
  request.terminal = backends::TerminalSize{};
  Record record = run(warden, request, 5s);
  CHECK_THAT(record.terminal, Catch::EndsWith("5000\r\nlast\r\n"));
  CHECK(std::count(record.terminal.begin(), record.terminal.end(), '\n') == 5001);
}

TEST_CASE("merged output is one stream in the order of writing") {
  WardenProcess warden;
  backends::StartRequest request = shell("for i in 1 2 3; do echo out; echo err >&2; done");
  request.merged = true;
  const Record record = run(warden, std::move(request));
  CHECK(record.output == "out\nerr\nout\nerr\nout\nerr\n");
  CHECK(record.error.empty());
}

TEST_CASE("the end says how much of its input a command read") {
  WardenProcess warden;
  const std::string lines = "one\ntwo\nthree\n";
  const std::string go = warden.directory() + "/go";
  int round = 0;
  for (const auto& [script, read] :
       std::map<std::string, std::string>{{"read line; read line", "8"},
                                          {"cat", "14"},
                                          {"true", "0"},
                                          {"exec <&-; sleep 0.2", "0"}}) {
    INFO(script);
    Running running(warden, reader("until [ -e " + go + " ]; do sleep 0.01; done; " + script),
                    "part-" + std::to_string(round++));
    CHECK(running.client.send_input(running.exec, 0, lines, 5s).read == 0);
    running.client.close_input(running.exec);
    base::write_file(go, "");
    CHECK(running.journal.wait_for_end().end.at("input_read").as_string() == read);
    std::filesystem::remove(go);
  }
}
