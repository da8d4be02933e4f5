// Commands with a journal: the recorded output, exit codes and start failures.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "base/error.h"
#include "warden_process.h"

using namespace moorage;
using namespace moorage::test;

TEST_CASE("fifty megabytes of arbitrary bytes pass through the journal unchanged") {
  WardenProcess warden;
  Record record = run(warden,
                      shell("openssl enc -aes-128-ctr -K 0123456789abcdef0123456789abcdef -iv "
                            "00000000000000000000000000000000 -in /dev/zero 2>/dev/null | "
                            "head -c 50000000"),
                      60s);
  Record digest = run(warden,
                      shell("openssl enc -aes-128-ctr -K 0123456789abcdef0123456789abcdef -iv "
                            "00000000000000000000000000000000 -in /dev/zero 2>/dev/null | "
                            "head -c 50000000 | sha256sum | cut -c1-64 | tr -d '\\n'"),
                      60s);
  REQUIRE(record.output.size() == 50'000'000);
  CHECK(sha256_hex(record.output) == digest.output);
  CHECK(record.first_is_started);
  CHECK(record.end.at("omitted_bytes").as_string() == "0");
  CHECK(record.end.at("max_rss_bytes").as_int64() > 0);
}

TEST_CASE("standard output and standard error are recorded separately") {
  WardenProcess warden;
  Record record = run(warden, shell("printf 'a\\0b'; printf err >&2"));
  CHECK(record.output == std::string("a\0b", 3));
  CHECK(record.error == "err");
  CHECK(record.kind() == "exited");
  CHECK(record.code() == 0);
}

TEST_CASE("every exit code from 0 to 255 is recorded") {
  WardenProcess warden;
  for (int code = 0; code < 256; ++code) {
    Record record = run(warden, shell("exit " + std::to_string(code)));
    REQUIRE(record.kind() == "exited");
    REQUIRE(record.code() == code);
    REQUIRE(record.signal() == 0);
  }
}

TEST_CASE("a command killed by a signal is recorded as signalled") {
  WardenProcess warden;
  for (int signal :
       {SIGHUP, SIGINT, SIGQUIT, SIGABRT, SIGKILL, SIGSEGV, SIGPIPE, SIGTERM, SIGUSR1, SIGXFSZ}) {
    Record record = run(warden, shell("kill -" + std::to_string(signal) + " $$"));
    REQUIRE(record.kind() == "signalled");
    REQUIRE(record.signal() == signal);
    REQUIRE(record.code() == -1);
  }
}

TEST_CASE("a command that cannot start ends with 126 or 127 and a hint") {
  WardenProcess warden;
  const std::string& directory = warden.directory();
  backends::StartRequest request = shell("");
  auto attempt = [&](std::vector<std::string> argv) {
    request.argv = std::move(argv);
    return run(warden, request);
  };
  auto write_script = [&](const std::string& name, const std::string& text, mode_t mode) {
    std::ofstream(directory + "/" + name) << text;
    REQUIRE(::chmod((directory + "/" + name).c_str(), mode) == 0);
    return directory + "/" + name;
  };

  Record record = attempt({"no-such-command"});
  CHECK(record.kind() == "exited");
  CHECK(record.code() == 127);
  CHECK(record.pid == 0);
  CHECK(record.failure() == "not_found");
  CHECK_THAT(record.error_text(),
             Catch::Contains("command not found in /usr/local/bin:/usr/bin:/bin"));

  record = attempt({"/no/such/file"});
  CHECK(record.code() == 127);
  CHECK_THAT(record.error_text(), Catch::Contains("no such file"));
  CHECK(record.failure() == "not_found");

  record = attempt({write_script("plain", "echo\n", 0644)});
  CHECK(record.code() == 126);
  CHECK_THAT(record.error_text(), Catch::Contains("chmod +x"));
  CHECK(record.failure() == "not_executable");

  record = attempt({write_script("bare", "echo\n", 0755)});
  CHECK(record.code() == 126);
  CHECK_THAT(record.error_text(), Catch::Contains("#!/bin/sh"));

  record = attempt({write_script("orphan", "#!/no/such/interpreter\n", 0755)});
  CHECK(record.code() == 126);
  CHECK_THAT(record.error_text(), Catch::Contains("interpreter is missing"));
  CHECK(record.failure() == "not_executable");

  record = attempt({"/tmp"});
  CHECK(record.code() == 126);

  request.directory = "/no/such/directory";
  record = attempt({"true"});
  CHECK(record.code() == 126);
  CHECK_THAT(record.error_text(), Catch::Contains("/no/such/directory cannot be entered"));
  CHECK(record.failure() == "not_started");
}

TEST_CASE("a command gets its environment and user, and nothing from the warden") {
  WardenProcess warden;
  backends::StartRequest request;
  request.argv = {"/usr/bin/env"};
  request.environment = {{"A", "1"}, {"B", "two words=\xff"}};
  request.directory = "/";
  CHECK(run(warden, request).output == "A=1\nB=two words=\xff\n");

  request.environment = {{"PATH", "/usr/bin:/bin"}};
  request.argv = {
      "sh", "-c",
      "id -u; id -g; id -G; umask; ulimit -c; ulimit -n; ls /proc/self/fd | tr '\\n' ' '"};
  CHECK(run(warden, request).output == "1000\n1000\n1000\n0022\n0\n1024\n0 1 2 3 ");

  // 3 above is the directory that ls reads. Signals: none blocked, none ignored.
  request.argv = {"grep", "-E", "Sig(Blk|Ign)|NSsid", "/proc/self/status"};
  CHECK_THAT(run(warden, request).output, Catch::Contains("SigBlk:\t0000000000000000") &&
                                              Catch::Contains("SigIgn:\t0000000000000000"));
  request.argv = {"cat", "/proc/self/oom_score_adj"};
  CHECK(run(warden, request).output == "0\n");
}

TEST_CASE("a command's oom score is 0 although the warden is protected") {
  WardenProcess warden;
  std::ofstream("/proc/" + std::to_string(warden.pid()) + "/oom_score_adj") << "-1000";
  CHECK(run(warden, shell("cat /proc/self/oom_score_adj")).output == "0\n");
}

TEST_CASE("invalid requests are refused with a reason") {
  WardenProcess warden;
  backends::StartRequest request = shell("true");
  auto code_of = [&](const backends::StartRequest& wrong) {
    try {
      warden.client().start(wrong, 5s);
    } catch (const base::Error& error) {
      return error.code();
    }
    return base::Code::internal;
  };
  Journal journal(warden.directory() + "/journal");
  request.journal_fd = journal.append_fd.get();
  for (std::string directory :
       {"/proc/self/fd/7/..", "/tmp/../proc/self/fd/3", "//proc/./self/root"}) {
    request.directory = directory;
    CHECK(code_of(request) == base::Code::invalid_argument);
  }
  request.directory = "/tmp";
  request.user = "daemon";
  CHECK(code_of(request) == base::Code::invalid_argument);
  request.user = "root";
  request.argv = {std::string("a\0b", 3)};
  CHECK(code_of(request) == base::Code::invalid_argument);
  request.argv = {"true"};
  request.environment["A=B"] = "";
  CHECK(code_of(request) == base::Code::invalid_argument);
  request.environment = {};

  base::Fd not_appending(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  request.journal_fd = not_appending.get();
  CHECK(code_of(request) == base::Code::invalid_argument);

  // A journal with contents means that this exec has already run.
  request.tag = "once";
  request.journal_fd = journal.append_fd.get();
  warden.client().start(request, 5s);
  journal.wait_for_end();
  CHECK(code_of(request) == base::Code::already_exists);
}

TEST_CASE("a running tag is not started again") {
  WardenProcess warden;
  Journal first(warden.directory() + "/first"), second(warden.directory() + "/second");
  backends::StartRequest request = shell("sleep 30");
  request.tag = "ex_1";
  request.journal_fd = first.append_fd.get();
  uint32_t pid = warden.client().start(request, 5s);
  CHECK(pid > 0);
  CHECK(first.read().pid == pid);
  auto list = warden.client().list();
  REQUIRE(list.size() == 1);
  CHECK(list[0].tag == "ex_1");
  CHECK(list[0].pid == pid);
  request.journal_fd = second.append_fd.get();
  CHECK_THROWS_AS(warden.client().start(request, 5s), base::Error);
  warden.client().send_signal("ex_1", SIGTERM);
  Record record = first.wait_for_end();
  CHECK(record.kind() == "signalled");
  CHECK(record.signal() == SIGTERM);
  CHECK(warden.client().list().empty());
  CHECK_THROWS_AS(warden.client().send_signal("ex_1", SIGTERM), base::Error);
}

TEST_CASE("the output limit keeps exactly that many bytes and counts the rest") {
  WardenProcess warden;
  backends::StartRequest request = shell("head -c 300000 /dev/zero; printf tail >&2");
  request.output_limit_bytes = 100'001;
  Record record = run(warden, request);
  CHECK(record.output.size() + record.error.size() == 100'001);
  CHECK(record.limit_frames == 1);
  CHECK(record.end.at("omitted_bytes").as_string() == std::to_string(300'004 - 100'001));
  CHECK(record.code() == 0);

  request.argv[2] = "head -c 100001 /dev/zero";
  record = run(warden, request);
  CHECK(record.output.size() == 100'001);
  CHECK(record.limit_frames == 0);
}

TEST_CASE("an exec ends with its main process and its background children live on") {
  WardenProcess warden;
  Record record = run(warden,
                      shell("(while :; do echo noise; echo noise >&2; done) & echo $! >&2; "
                            "sleep 0.05; printf last"),
                      5s);
  CHECK(record.kind() == "exited");
  CHECK(record.end.at("wall_ms").as_int64() < 3000);
  pid_t background =
      static_cast<pid_t>(std::stol(record.error.substr(record.error.find_first_of("0123456789"))));
  CHECK(record.output.find("last") != std::string::npos);
  // It writes far more than a pipe holds, yet is neither blocked nor killed by SIGPIPE.
  auto cpu = [&] {
    std::ifstream file("/proc/" + std::to_string(background) + "/stat");
    std::string text((std::istreambuf_iterator<char>(file)), {});
    return text;
  };
  std::string before = cpu();
  CHECK(eventually([&] { return cpu() != before; }, 3s));
  CHECK(process_lives(background));
  ::kill(background, SIGKILL);
}

TEST_CASE("output before the end is in the journal, however fast the command was") {
  WardenProcess warden;
  for (int round = 0; round < 100; ++round) {
    Record record = run(warden, shell("head -c 60000 /dev/zero; printf done >&2"));
    REQUIRE(record.output.size() == 60000);
    REQUIRE(record.error == "done");
  }
}
