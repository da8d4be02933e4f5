#include "base/os/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/thread_pool.h"
#include "temporary_directory.h"

using namespace moorage;
using namespace std::chrono_literals;
using base::ProcessOptions;
using base::ProcessResult;
using base::run_process;
using test::code_thrown_by;

namespace {

ProcessResult shell(const std::string& script, const ProcessOptions& options = {}) {
  return run_process({"/bin/sh", "-c", script}, options);
}

bool gone_within(int pid, int milliseconds) {
  const int64_t end = base::system_clock().boot_ms() + milliseconds;
  while (base::system_clock().boot_ms() < end) {
    if (!base::process_alive(base::identify_process(pid))) return true;
    usleep(5000);
  }
  return false;
}

}  // namespace

TEST_CASE("output, errors and exit codes come back") {
  const auto result = shell("echo out; echo err >&2; exit 3");
  CHECK(result.output == "out\n");
  CHECK(result.error == "err\n");
  CHECK(result.exit_code == 3);
  CHECK_FALSE(result.ok());
  CHECK(run_process({"true"}, {}).ok());
  const auto killed = shell("kill -TERM $$");
  CHECK(killed.signal == SIGTERM);
  CHECK_FALSE(killed.ok());
}

TEST_CASE("the child gets exactly the given environment") {
  setenv("MOORAGE_TEST_SECRET", "leak", 1);
  ProcessOptions options;
  CHECK(run_process({"/usr/bin/env"}, options).output.empty());
  options.environment = {{"A", "1"}, {"EMPTY", ""}, {"SPACES", "x y\nz"}};
  CHECK(run_process({"/usr/bin/env", "-0"}, options).output ==
        std::string("A=1\0EMPTY=\0SPACES=x y\nz\0", 24));
}

TEST_CASE("arguments arrive unchanged, including empty ones") {
  const std::vector<std::string> argv{"/usr/bin/printf", "[%s]",  "",    "a b",
                                      "\"q\"",           "$HOME", "\xff"};
  CHECK(run_process(argv, {}).output == "[][a b][\"q\"][$HOME][\xff]");
}

TEST_CASE("the child gets no descriptor above 2 except the listed ones") {
  base::Fd open_on_exec(fcntl(STDIN_FILENO, F_DUPFD, 50));  // not close-on-exec
  base::Fd named(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 70));
  REQUIRE(open_on_exec);
  REQUIRE(named);
  ProcessOptions options;
  options.input = "something";
  // The listing itself holds a descriptor of /proc/self/fd: 3, or the next free number.
  CHECK(run_process({"/bin/ls", "/proc/self/fd"}, options).output == "0\n1\n2\n3\n");
  options.inherit_fds = {named.get()};
  CHECK(run_process({"/bin/ls", "-v", "/proc/self/fd"}, options).output ==
        "0\n1\n2\n3\n" + std::to_string(named.get()) + "\n");
}

TEST_CASE("concurrent children do not get each other's pipes") {
  std::atomic<int> leaks = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 20; ++j) {
        if (run_process({"/bin/ls", "/proc/self/fd"}, {}).output != "0\n1\n2\n3\n") ++leaks;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(leaks == 0);
}

TEST_CASE("at the deadline grandchildren die too, and their pipes are not waited for") {
  test::TemporaryDirectory directory;
  ProcessOptions options;
  options.directory = directory.path();
  options.environment = {{"PATH", "/usr/bin:/bin"}};
  options.deadline = 300ms;
  const int64_t start = base::system_clock().boot_ms();
  CHECK(code_thrown_by([&] {
          shell("(trap '' TERM; sleep 1000) & echo $! > grandchild; echo $$ > child; wait",
                options);
        }) == "deadline_exceeded");
  CHECK(base::system_clock().boot_ms() - start < 5000);
  const int child = std::stoi(base::read_file(directory / "child"));
  const int grandchild = std::stoi(base::read_file(directory / "grandchild"));
  CHECK(gone_within(grandchild, 5000));
  CHECK(base::identify_process(child).start_ticks == 0);  // reaped, not a zombie
}

TEST_CASE("a process left in the group dies with its parent; one that left the group may stay") {
  ProcessOptions options;
  options.environment = {{"PATH", "/usr/bin:/bin"}};
  const int left_behind = std::stoi(shell("sleep 1000 & echo $!", options).output);
  CHECK(gone_within(left_behind, 5000));
  // It keeps both pipes open indefinitely, which must not block us.
  const int daemon = std::stoi(shell("setsid sleep 1000 & sleep 0.2; echo $!", options).output);
  CHECK(base::process_alive(base::identify_process(daemon)));
  kill(daemon, SIGKILL);
}

TEST_CASE("a child that stopped reading and writing still meets its deadline") {
  ProcessOptions options;
  options.deadline = 200ms;
  CHECK(code_thrown_by([&] { shell("exec >&- 2>&- <&-; while :; do :; done", options); }) ==
        "deadline_exceeded");
}

TEST_CASE("input and output larger than every pipe do not deadlock") {
  ProcessOptions options;
  options.environment = {{"PATH", "/usr/bin:/bin"}};
  options.input = std::string(8 << 20, 'i');
  const auto result = shell("tee /dev/stderr", options);
  CHECK(result.output == options.input);
  CHECK(result.error == std::string(64 << 10, 'i'));
  CHECK(run_process({"/bin/cat"}, {}).output.empty());
}

TEST_CASE("standard input may be a descriptor of the caller") {
  base::Pipe pipe = base::make_pipe();
  base::write_all(pipe.write_end.get(), "from a pipe");
  pipe.write_end.reset();
  ProcessOptions options;
  options.input_fd = pipe.read_end.get();
  CHECK(run_process({"/bin/cat"}, options).output == "from a pipe");
}

TEST_CASE("too much output ends the child") {
  ProcessOptions options;
  options.max_output_bytes = 1 << 20;
  CHECK(code_thrown_by([&] { run_process({"yes"}, options); }) == "resource_exhausted");
  options.max_output_bytes = 5;
  CHECK(shell("printf 12345", options).output == "12345");
  CHECK(code_thrown_by([&] { shell("printf 123456", options); }) == "resource_exhausted");
}

TEST_CASE("standard error is passed on as it arrives, and an exception there ends the child") {
  ProcessOptions options;
  options.environment = {{"PATH", "/usr/bin:/bin"}};
  std::string seen;
  options.on_error_output = [&](std::string_view bytes) { seen += bytes; };
  shell("echo one >&2; sleep 0.05; echo two >&2", options);
  CHECK(seen == "one\ntwo\n");
  options.on_error_output = [](std::string_view) { throw base::Error(base::Code::conflict, "no"); };
  CHECK(code_thrown_by([&] { shell("echo one >&2; sleep 1000", options); }) == "conflict");
}

TEST_CASE("a failed start says why") {
  CHECK(code_thrown_by([] { run_process({"moorage-has-no-such-tool"}, {}); }) == "unsupported");
  CHECK(code_thrown_by([] { run_process({"/none/such"}, {}); }) == "unsupported");
  CHECK(code_thrown_by([] { run_process({"/etc/passwd"}, {}); }) == "permission_denied");
  CHECK(code_thrown_by([] { run_process({}, {}); }) == "invalid_argument");
  CHECK(code_thrown_by([] { run_process({"bin/sh"}, {}); }) == "invalid_argument");
  ProcessOptions options;
  options.directory = "/none";
  CHECK(code_thrown_by([&] { shell("true", options); }) == "not_found");
}

TEST_CASE("at the task limit, processes and pools report it with a hint") {
  const pid_t pid = fork();
  if (pid == 0) {
    constexpr uid_t kNobodys = 1'900'000'000;  // the limit covers all processes of a user
    const rlimit one{1, 1};
    if (setrlimit(RLIMIT_NPROC, &one) < 0 || setresuid(kNobodys, kNobodys, kNobodys) < 0) _exit(9);
    const auto says_so = [](auto make) {
      try {
        make();
      } catch (const base::Error& error) {
        return error.code() == base::Code::resource_exhausted &&
               error.message().find("Resource temporarily unavailable") != std::string::npos &&
               error.hint().find("TasksMax") != std::string::npos;
      }
      return false;
    };
    const bool process = says_so([] { run_process({"/bin/true"}, {}); });
    const bool thread = says_so([] { base::ThreadPool(1, 1).submit([] {}); });
    _exit((process ? 0 : 1) + (thread ? 0 : 2));
  }
  int status = -1;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a bare name is not searched in the caller's PATH") {
  test::TemporaryDirectory directory;
  base::write_file(directory / "only-here", "#!/bin/sh\necho wrong\n", 0755);
  const std::string before = getenv("PATH") ? getenv("PATH") : "";
  setenv("PATH", directory.path().c_str(), 1);
  CHECK(code_thrown_by([] { run_process({"only-here"}, {}); }) == "unsupported");
  CHECK(run_process({"true"}, {}).ok());
  setenv("PATH", before.c_str(), 1);
}

TEST_CASE("limits apply to the child") {
  test::TemporaryDirectory directory;
  ProcessOptions options;
  options.directory = directory.path();
  options.environment = {{"PATH", "/usr/bin:/bin"}};
  options.max_file_bytes = 4096;
  CHECK_FALSE(shell("head -c 100000 /dev/zero > big", options).ok());
  CHECK(base::read_file(directory / "big").size() == 4096);
  options.max_file_bytes = 0;
  options.max_memory_bytes = 64 << 20;
  CHECK(shell("ulimit -v", options).output == "65536\n");
}

TEST_CASE("the child does not inherit ignored or blocked signals") {
  struct sigaction before {};
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before);
  sigset_t usr1;
  sigset_t mask_before;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, &mask_before);
  const std::string status = run_process({"/bin/cat", "/proc/self/status"}, {}).output;
  sigset_t mask_after;
  pthread_sigmask(SIG_SETMASK, &mask_before, &mask_after);
  sigaction(SIGPIPE, &before, nullptr);
  CHECK(status.find("SigBlk:\t0000000000000000") != std::string::npos);
  CHECK(status.find("SigIgn:\t0000000000000000") != std::string::npos);
  CHECK(sigismember(&mask_after, SIGUSR1) == 1);  // our mask was restored
}

TEST_CASE("a process differs from a later one with its pid") {
  const auto self = base::identify_process(getpid());
  CHECK(self.start_ticks > 0);
  CHECK(base::process_alive(self));
  CHECK_FALSE(base::process_alive({getpid(), self.start_ticks + 1}));
  CHECK(base::identify_process(0).start_ticks == 0);
  CHECK(base::identify_process(1 << 30).start_ticks == 0);
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
  CHECK_FALSE(base::process_alive(base::identify_process(pid)));  // a zombie
  waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED);
}

TEST_CASE("a program's name with parentheses and spaces does not confuse its start time") {
  test::TemporaryDirectory directory;
  const std::string program = directory / ") R 1 2 (x";
  base::write_file(program, base::read_file("/bin/cat"), 0755);
  base::Pipe pipe = base::make_pipe();
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(pipe.read_end.get(), STDIN_FILENO);
    execl(program.c_str(), program.c_str(), nullptr);
    _exit(127);
  }
  std::string stat;
  while (stat.find(" () R 1 2 (x) ") == std::string::npos) {  // until it has its name
    stat = base::read_file("/proc/" + std::to_string(pid) + "/stat");
  }
  std::istringstream fields(stat.substr(stat.rfind(')') + 2));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  const auto identity = base::identify_process(pid);
  CHECK(std::to_string(identity.start_ticks) == field);
  CHECK(base::process_alive(identity));
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  CHECK_FALSE(base::process_alive(identity));
}
