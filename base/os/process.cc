#include "base/os/process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

// Boost's default is a library that no other code here needs.
#define BOOST_PROCESS_USE_STD_FS
#include <boost/process/child.hpp>
#include <boost/process/error.hpp>
#include <boost/process/extend.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"

namespace moorage::base {
namespace {

namespace bp = boost::process;

constexpr size_t kKeptErrorBytes = 64 << 10;
constexpr int kMaxDyingMs = 10'000;  // after SIGKILL; longer only if uninterruptible

enum class ChildStep : int { redirect, close_others, directory, limits, exec };

// Follows "start X: ", for example "change directory".
std::string_view child_step_name(ChildStep step) {
  constexpr std::array<std::string_view, 5> kNames{"set up standard streams",
                                                   "close other descriptors", "change directory",
                                                   "set limits", "execute"};
  return kNames.at(static_cast<size_t>(step));
}

// The failure in the child, as it arrives through a pipe.
struct ChildFailure {
  ChildStep step;
  int error_number;
};

// What a child does between fork and exec. Another thread of the parent may have held the
// allocator's lock at the fork, so everything is prepared before it and the child makes only
// async-signal-safe calls (signal-safety(7)).
struct ChildPlan {
  const char* directory = nullptr;
  int streams[3] = {-1, -1, -1};  // all above 2, so that no dup2 overwrites another
  const std::vector<int>* inherit_fds = nullptr;
  uint64_t max_memory_bytes = 0;
  uint64_t max_data_bytes = 0;
  uint64_t max_file_bytes = 0;
  int failure_fd = -1;

  // Its own process group, default signals, the streams, the directory, the limits.
  void apply() const;
  [[noreturn]] void fail(ChildStep step, int error_number) const;

 private:
  void limit(int resource, uint64_t value) const;
};

void reset_signals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  // The C library refuses its own two signals, the kernel KILL and STOP; ignore those failures.
  for (int number = 1; number <= SIGRTMAX; ++number) sigaction(number, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

void ChildPlan::apply() const {
  setpgid(0, 0);
  reset_signals();
  for (int i = 0; i < 3; ++i) {
    if (dup2(streams[i], i) < 0) fail(ChildStep::redirect, errno);
  }
  // Marked close-on-exec rather than closed, so that a failing exec can still be reported.
  if (syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) < 0) {
    fail(ChildStep::close_others, errno);
  }
  for (int fd : *inherit_fds) {
    if (fd > 2 && fcntl(fd, F_SETFD, 0) < 0) fail(ChildStep::close_others, errno);
  }
  if (chdir(directory) < 0) fail(ChildStep::directory, errno);
  if (max_memory_bytes) limit(RLIMIT_AS, max_memory_bytes);
  if (max_data_bytes) limit(RLIMIT_DATA, max_data_bytes);
  if (max_file_bytes) limit(RLIMIT_FSIZE, max_file_bytes);
}

void ChildPlan::fail(ChildStep step, int error_number) const {
  const ChildFailure failure{step, error_number};
  // Fits PIPE_BUF; if even this fails, the exit code below still shows that nothing ran.
  [[maybe_unused]] ssize_t written = write(failure_fd, &failure, sizeof failure);
  _exit(127);
}

void ChildPlan::limit(int resource, uint64_t value) const {
  const rlimit both{value, value};
  if (setrlimit(static_cast<__rlimit_resource>(resource), &both) < 0) {
    fail(ChildStep::limits, errno);
  }
}

// The plan for Boost.Process: program, arguments and environment in the form of execve(2).
struct ChildSetup : bp::extend::handler {
  const char* program = nullptr;
  std::vector<char*> argv;
  std::vector<char*> environment;
  ChildPlan plan;

  template <typename Executor>
  void on_setup(Executor& executor) {
    executor.exe = program;
    executor.cmd_line = argv.data();
    executor.env = environment.data();
  }
  template <typename Executor>
  void on_exec_setup(Executor&) const {
    plan.apply();
  }
  template <typename Executor>
  void on_exec_error(Executor&, const std::error_code& error) const {
    plan.fail(ChildStep::exec, error.value());
  }
};

// Blocks all signals in this thread, so that none of our handlers runs in the child before it
// resets them.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(SignalsBlocked&&) = delete;

 private:
  sigset_t before_{};
};

// A child and its process group. An early exit leaves nothing running.
class ChildProcess {
 public:
  ChildProcess(ChildSetup& setup, const std::string& name) {
    int fork_error = 0;
    {
      SignalsBlocked blocked;
      bp::child child(setup, bp::ignore_error);
      fork_error = errno;
      pid_ = child.id();
      child.detach();  // reaped here, through the pidfd
    }
    if (pid_ <= 0) throw_no_task("start " + name, fork_error);
    setpgid(pid_, pid_);  // the child does it too, in case it is first
    pidfd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
    if (!pidfd_) {
      int error_number = errno;
      reap();
      throw_errno("start " + name, error_number);
    }
  }
  ~ChildProcess() {
    if (pid_ > 0) reap();
  }
  ChildProcess(ChildProcess&&) = delete;

  int pidfd() const { return pidfd_.get(); }

  // Kills the rest of the group. The unreaped child prevents reuse of the number.
  siginfo_t reap() {
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
    pid_t pid = std::exchange(pid_, -1);
    siginfo_t info{};
    if (pidfd_ && !wait_readable(pidfd_.get(), kMaxDyingMs)) return info;
    while (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED) < 0 && errno == EINTR) {
    }
    return info;
  }

 private:
  pid_t pid_ = -1;
  Fd pidfd_;
};

std::string find_program(const std::string& name) {
  if (name.starts_with('/')) return name;
  if (name.empty() || name.find('/') != std::string::npos) {
    throw Error(Code::invalid_argument, "a program needs an absolute path or a bare name");
  }
  for (const char* directory :
       {"/usr/local/sbin/", "/usr/local/bin/", "/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"}) {
    std::string path = directory + name;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  throw Error(Code::unsupported, name + " is not installed on this host", "install " + name);
}

Fd above_standard(Fd fd) { return fd.get() > 2 ? std::move(fd) : fd.duplicate(); }

// Input is an unnamed file, not a pipe: no one has to feed it, so no deadlock is possible.
Fd make_input(const ProcessOptions& options) {
  if (options.input_fd >= 0) {
    return Fd(check(fcntl(options.input_fd, F_DUPFD_CLOEXEC, 3), "duplicate the input"));
  }
  if (options.input.empty()) return above_standard(open_file("/dev/null", O_RDONLY));
  Fd file(check(memfd_create("input", MFD_CLOEXEC), "create the input"));
  write_all(file.get(), options.input);
  check(lseek(file.get(), 0, SEEK_SET), "rewind the input");
  return above_standard(std::move(file));
}

// A pipe from the child; its read end never blocks.
Pipe make_output_pipe() {
  Pipe pipe = make_pipe();
  pipe.write_end = above_standard(std::move(pipe.write_end));
  check(fcntl(pipe.read_end.get(), F_SETFL, O_NONBLOCK), "set up a pipe");
  return pipe;
}

// One run: the pipes, and the loop that drains them until the child ends or time runs out.
class Run {
 public:
  Run(const std::vector<std::string>& argv, const ProcessOptions& options)
      : options_(options), name_(argv.at(0)) {
    const std::string program = find_program(name_);
    Fd input = make_input(options);
    Pipe out = make_output_pipe();
    Fd file;
    if (options.output_fd >= 0) {
      file = Fd(check(fcntl(options.output_fd, F_DUPFD_CLOEXEC, 3), "duplicate the output"));
    }
    Pipe error = make_output_pipe();
    Pipe failure = make_output_pipe();
    std::vector<std::string> variables;
    ChildSetup setup;
    setup.program = program.c_str();
    for (const std::string& word : argv) setup.argv.push_back(const_cast<char*>(word.c_str()));
    setup.argv.push_back(nullptr);
    for (const auto& [key, value] : options.environment) {
      variables.emplace_back(key).append("=").append(value);
    }
    for (std::string& variable : variables) setup.environment.push_back(variable.data());
    setup.environment.push_back(nullptr);
    setup.plan = {
        .directory = options.directory.c_str(),
        .streams = {input.get(), file ? file.get() : out.write_end.get(), error.write_end.get()},
        .inherit_fds = &options.inherit_fds,
        .max_memory_bytes = options.max_memory_bytes,
        .max_data_bytes = options.max_data_bytes,
        .max_file_bytes = options.max_file_bytes,
        .failure_fd = failure.write_end.get()};
    child_.emplace(setup, name_);
    out_ = std::move(out.read_end);
    error_ = std::move(error.read_end);
    failure_ = std::move(failure.read_end);
  }

  ProcessResult finish() {
    const int64_t end_ms = system_clock().boot_ms() + options_.deadline.count();
    while (!wait_for_more(end_ms)) {
      drain(out_, [this](std::string_view bytes) { take_output(bytes); });
      drain(error_, [this](std::string_view bytes) { take_error(bytes); });
    }
    const siginfo_t info = child_->reap();
    // Its last output is in the pipes now. Drain the pipes again, but not until end of file: a
    // process that left the group may keep the pipes open indefinitely.
    drain(out_, [this](std::string_view bytes) { take_output(bytes); });
    drain(error_, [this](std::string_view bytes) { take_error(bytes); });
    throw_start_failure();
    if (info.si_code == CLD_EXITED) {
      result_.exit_code = info.si_status;
    } else if (info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED) {
      result_.signal = info.si_status;
    } else {
      throw Error(Code::internal, name_ + ": its exit status was lost");
    }
    return std::move(result_);
  }

 private:
  // True when the child has ended. Throws at the deadline (the destructors kill).
  bool wait_for_more(int64_t end_ms) {
    const int64_t left_ms = end_ms - system_clock().boot_ms();
    if (left_ms <= 0) {
      throw Error(Code::deadline_exceeded, name_ + " did not end within " +
                                               std::to_string(options_.deadline.count()) + " ms");
    }
    pollfd entries[3] = {{child_->pidfd(), POLLIN, 0},
                         {out_.get(), POLLIN, 0},  // -1 at its end: poll skips it
                         {error_.get(), POLLIN, 0}};
    int ready = poll(entries, 3, static_cast<int>(std::min<int64_t>(left_ms, 60'000)));
    if (ready < 0 && errno != EINTR) throw_errno("wait for " + name_);
    return ready > 0 && entries[0].revents != 0;
  }

  // Reads at most the available bytes: a writer faster than us must not delay the deadline.
  template <typename Take>
  void drain(Fd& fd, Take take) {
    int waiting = 0;
    if (!fd) return;
    check(ioctl(fd.get(), FIONREAD, &waiting), "get the size of waiting output");
    do {
      char buffer[64 << 10];
      ssize_t count = read(fd.get(), buffer, sizeof buffer);
      if (count == 0) fd.reset();
      if (count == 0 || (count < 0 && errno == EAGAIN)) return;
      if (count < 0 && errno == EINTR) continue;
      take(std::string_view(buffer, static_cast<size_t>(check(count, "read its output"))));
      waiting -= static_cast<int>(count);
    } while (waiting > 0);
  }

  void take_output(std::string_view bytes) {
    if (result_.output.size() + bytes.size() > options_.max_output_bytes) {
      throw Error(
          Code::resource_exhausted,
          name_ + " wrote more than " + std::to_string(options_.max_output_bytes) + " bytes");
    }
    result_.output += bytes;
  }

  void take_error(std::string_view bytes) {
    if (options_.on_error_output) options_.on_error_output(bytes);
    result_.error += bytes;
    if (result_.error.size() > kKeptErrorBytes) {
      result_.error.erase(0, result_.error.size() - kKeptErrorBytes);
    }
  }

  void throw_start_failure() {
    ChildFailure failure{};
    if (read(failure_.get(), &failure, sizeof failure) != sizeof failure) return;
    std::string what = "start " + name_ + ": " + std::string(child_step_name(failure.step));
    if (failure.step == ChildStep::exec && failure.error_number == ENOENT) {
      throw Error(Code::unsupported, "cannot " + what + ": it is not installed on this host",
                  "install " + name_);
    }
    throw_errno(what, failure.error_number);
  }

  const ProcessOptions& options_;
  std::string name_;
  Fd out_;
  Fd error_;
  Fd failure_;
  ProcessResult result_;
  std::optional<ChildProcess> child_;
};

}  // namespace

ProcessResult run_process(const std::vector<std::string>& argv, const ProcessOptions& options) {
  if (argv.empty()) throw Error(Code::invalid_argument, "no program given");
  return Run(argv, options).finish();
}

}  // namespace moorage::base
