// The last output of a command, and the output of processes it leaves behind.
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "warden_process.h"

using namespace moorage;
using namespace moorage::test;

namespace {

constexpr size_t kMaxLate = 256;  // as in warden/output/late_output.h

int rounds() { return std::getenv("MOORAGE_TEST_LONG") ? 200 : 10; }

backends::StartRequest bash(const std::string& script) {
  backends::StartRequest request = shell(script);
  request.argv = {"/bin/bash", "-c", script};
  return request;
}

std::vector<double> sorted_ms(int times, const std::function<void(int)>& task) {
  std::vector<double> took;
  for (int i = 0; i < times; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    task(i);
    took.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  std::sort(took.begin(), took.end());
  return took;
}

pid_t pid_in(const std::string& path) {
  std::ifstream file(path);
  pid_t pid = 0;
  file >> pid;
  return pid;
}

// With a cgroup's kill descriptor there is no keeper; it is written only to kill.
struct Kind {
  bool keeper;
  bool terminal;
};

}  // namespace

TEST_CASE("last output of processes left by a command is part of its output") {
  const Kind kind =
      GENERATE(Kind{true, false}, Kind{false, false}, Kind{true, true}, Kind{false, true});
  const std::string script =
      GENERATE(as<std::string>{}, "exec > >(tee /dev/null); echo said", "echo said | cat & exit 0",
               "(exec 2>&-; sleep 0; echo said) & exit 3",
               "python3 -c 'import subprocess; "
               "subprocess.Popen([\"sh\", \"-c\", \"echo said\"])'");
  WardenProcess warden(Role::process_one);
  base::Fd kill(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  CAPTURE(kind.keeper, kind.terminal, script);
  for (int i = 0; i < rounds(); ++i) {
    backends::StartRequest request = bash(script);
    if (!kind.keeper) request.kill_fd = kill.get();
    if (kind.terminal) request.terminal = backends::TerminalSize{};
    const Record record = run(warden, request);
    REQUIRE((kind.terminal ? record.terminal : record.output) ==
            (kind.terminal ? "said\r\n" : "said\n"));
  }
  CHECK(eventually([&] { return warden.children().empty(); }, 5s));
}

TEST_CASE("a command whose child holds its output for an hour ends at once") {
  WardenProcess warden(Role::process_one);
  const bool terminal = GENERATE(false, true);
  const std::string child = GENERATE(as<std::string>{}, "sleep 3600", "setsid sleep 3600",
                                     "while :; do :; done", "yes >&2");
  const auto took = sorted_ms(5, [&](int) {
    backends::StartRequest request = shell(child + " & echo started");
    if (terminal) request.terminal = backends::TerminalSize{};
    const Record record = run(warden, request);
    REQUIRE(record.code() == 0);
    REQUIRE_THAT(record.output + record.terminal, Catch::Contains("started"));
  });
  CHECK(took[0] < 1000 * patience());  // the best: the machine may be busy
}

TEST_CASE("later output of a background process is recorded after the end, with its time") {
  WardenProcess warden(Role::process_one);
  const std::string go = warden.directory() + "/go";
  const bool terminal = GENERATE(false, true);
  const std::string name = terminal ? "terminal" : "pipes";
  Journal journal(warden.directory() + "/" + name);
  backends::StartRequest request =
      shell("(while ! [ -e " + go + name +
            " ]; do sleep 0.05; done; echo late; echo bad >&2) & echo now");
  request.tag = name;
  request.journal_fd = journal.append_fd.get();
  if (terminal) request.terminal = backends::TerminalSize{};
  warden.client().start(request, 5s);
  const Record at_end = journal.wait_for_end();
  CHECK(at_end.output + at_end.terminal == (terminal ? "now\r\n" : "now\n"));
  CHECK(warden.client().list().empty());
  std::ofstream(go + name) << "";
  const auto all = [&] {
    const Record record = journal.read();
    return record.late + record.late_error + record.late_terminal;
  };
  const std::string expected = terminal ? "late\r\nbad\r\n" : "late\nbad\n";
  CHECK(eventually([&] { return all() == expected; }));
  CHECK(eventually([&] { return warden.children().empty(); }, 5s));
}

TEST_CASE("endless late output is bounded and marked, and its writer continues") {
  WardenProcess warden(Role::process_one);
  const std::string pid_file = warden.directory() + "/pid";
  Journal journal(warden.directory() + "/journal");
  backends::StartRequest request = shell("sh -c 'echo $$ >" + pid_file + "; exec yes' & sleep 0.1");
  request.tag = "yes";
  request.journal_fd = journal.append_fd.get();
  warden.client().start(request, 5s);
  journal.wait_for_end();
  const auto size = [&] {
    struct stat status {};
    ::stat(journal.path.c_str(), &status);
    return static_cast<uint64_t>(status.st_size);
  };
  constexpr uint64_t kLate = 16 << 20;
  REQUIRE(eventually([&] { return journal.read().limit_frames == 1; }, 60s));
  const uint64_t full = size();
  const pid_t writer = pid_in(pid_file);
  REQUIRE(writer > 0);
  CHECK(warden.client().healthy(5s));
  CHECK(size() == full);
  warden.client().shut_down(100ms);
  CHECK(warden.wait_for_exit(10s) == 0);
  const Record record = journal.read();
  CHECK(record.dropped_bytes > 0);
  CHECK(record.late.size() >= kLate);
  CHECK(record.late.size() < kLate + (1 << 20));
  CHECK(record.late.ends_with("y\n"));
}

TEST_CASE("one command beyond the late limit: the oldest one's journal marks where it ends") {
  WardenProcess warden(Role::process_one);
  const std::string go = warden.directory() + "/go";
  const std::string went = warden.directory() + "/went";
  const base::Fd kill(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  std::vector<std::unique_ptr<Journal>> journals;
  const auto start = [&](const std::string& script) {
    const std::string name = "late" + std::to_string(journals.size());
    journals.push_back(std::make_unique<Journal>(warden.directory() + "/" + name));
    backends::StartRequest request = shell(script);
    request.tag = name;
    request.journal_fd = journals.back()->append_fd.get();
    request.kill_fd = kill.get();
    warden.client().start(request, 20s);
    journals.back()->wait_for_end();
    journals.back()->append_fd.reset();
  };
  start("(until [ -e " + go + " ]; do sleep 0.05; done; echo more; echo more; touch " + went +
        ") & echo now");
  const auto last = [&](size_t n) { return journals[n]->read(); };
  for (size_t i = 1; i < kMaxLate; ++i) start("sleep 1000 & echo now");
  CHECK(last(0).limit_frames == 0);
  start("sleep 1000 & echo now");
  CHECK(eventually([&] { return last(0).limit_frames == 1; }));
  CHECK(last(1).limit_frames == 0);
  std::ofstream(go) << "";
  // Its pipe is still read: no SIGPIPE and no blocked write.
  CHECK(eventually([&] { return ::access(went.c_str(), F_OK) == 0; }));
  CHECK(last(0).late.empty());
  CHECK(last(0).output == "now\n");
}

TEST_CASE("the last output of a sandbox's processes is recorded before it ends") {
  WardenProcess warden(Role::process_one);
  Journal journal(warden.directory() + "/journal");
  backends::StartRequest request =
      shell("(trap 'echo bye; exit' TERM; touch " + warden.directory() +
            "/up; while :; do sleep 0.05; done) & exit 0");
  request.journal_fd = journal.append_fd.get();
  warden.client().start(request, 5s);
  journal.wait_for_end();
  REQUIRE(eventually([&] { return ::access((warden.directory() + "/up").c_str(), F_OK) == 0; }));
  warden.client().shut_down(5s);
  CHECK(warden.wait_for_exit(5s) == 0);
  const Record record = journal.read();
  CHECK(record.output + record.late == "bye\n");
}

TEST_CASE("a command can open its own streams by name") {
  WardenProcess warden(Role::process_one);
  const bool terminal = GENERATE(false, true);
  const std::string user = GENERATE(as<std::string>{}, "root", "user");
  backends::StartRequest request = shell(
      "echo out >/dev/stdout; echo err >/dev/stderr; echo fd >/dev/fd/1; "
      "python3 -c 'open(\"/dev/stdout\", \"w\").write(\"python\\n\")'");
  request.user = user;
  if (terminal) request.terminal = backends::TerminalSize{};
  const Record record = run(warden, request);
  CAPTURE(terminal, user, record.error, record.terminal);
  CHECK(record.code() == 0);
  if (terminal) {
    CHECK(record.terminal == "out\r\nerr\r\nfd\r\npython\r\n");
  } else {
    CHECK(record.output == "out\nfd\npython\n");
    CHECK(record.error == "err\n");
  }

  Journal journal(warden.directory() + "/input" + user + (terminal ? "t" : "p"));
  request = shell("head -n1 /dev/stdin; head -n1 /dev/fd/0");
  request.user = user;
  request.tag = "input" + user + (terminal ? "t" : "p");
  request.input = true;
  if (terminal) request.terminal = backends::TerminalSize{};
  request.journal_fd = journal.append_fd.get();
  warden.client().start(request, 5s);
  warden.client().send_input(request.tag, 0, "one\n", 5s);
  REQUIRE(eventually([&] {
    const Record now = journal.read();
    return (now.output + now.terminal).find("one") != std::string::npos;
  }));
  warden.client().send_input(request.tag, 4, "two\n", 5s);
  const Record read = journal.wait_for_end();
  CHECK(read.code() == 0);
  CHECK_THAT(read.output + read.terminal, Catch::Contains("two"));
}

TEST_CASE("Ctrl-Z does not stop a command that no one could continue") {
  WardenProcess warden(Role::process_one);
  Journal journal(warden.directory() + "/journal");
  backends::StartRequest request = shell("echo up; read line; echo got $line");
  request.tag = "stop";
  request.terminal = backends::TerminalSize{};
  request.journal_fd = journal.append_fd.get();
  warden.client().start(request, 5s);
  REQUIRE(eventually([&] { return journal.read().terminal == "up\r\n"; }));
  warden.client().send_input("stop", 0, "\x1a", 5s);
  warden.client().send_input("stop", 1, "line\n", 5s);
  CHECK_THAT(journal.wait_for_end().terminal, Catch::Contains("got line"));
}
