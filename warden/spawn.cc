#include "warden/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include "base/error.h"
#include "base/parts.h"
#include "warden/subreaper.h"

namespace moorage::warden {
namespace {

constexpr const char* kDefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr gid_t kTtyGroup = 5;  // Debian's; without it only write(1) fails
constexpr int kStatusFd = 3;    // in the child

void check(bool ok, const char* what) {
  if (!ok) base::throw_errno(what);
}

// The child's three streams, and the warden's ends of them.
struct Streams {
  Fd input, output, error;
};

struct Preparation {
  Streams child;
  Fd status_write;
  Fd report_write;
  // For a terminal: the session leader waits until this closes, and reports to the subreaper which
  // process the command is.
  Fd release;
  base::Pipe leader;
  std::vector<char*> argv;
  std::vector<char*> environment;
  std::vector<std::string> candidates;  // paths to try for argv[0], from PATH
};

std::vector<std::string> candidates(const Command& command) {
  const std::string& name = command.argv[0];
  if (name.find('/') != std::string::npos) return {name};
  std::vector<std::string> paths;
  std::string path = path_of(command, kDefaultPath);
  for (const std::string_view directory : base::split(path, ':')) {
    paths.push_back(std::string(directory.empty() ? "." : directory) + "/" + name);
  }
  return paths;
}

void set_nonblocking(const Fd& fd) {
  int flags = ::fcntl(fd.get(), F_GETFL);
  check(flags >= 0 && ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) == 0, "set up a pipe");
}

// A pipe whose read end is `ours` and never blocks; returns the child's end.
Fd pipe_to(Fd& ours) {
  base::Pipe pipe = base::make_pipe();
  ours = std::move(pipe.read_end);
  set_nonblocking(ours);
  return std::move(pipe.write_end);
}

// Not by the terminal's name: the agent can rearrange /dev/pts.
void open_terminal(const Command& command, Spawned& ours, Streams& child) {
  Fd master(base::check_allowance(::open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC),
                                  "open /dev/ptmx", "kernel.pty.max on the host"));
  int unlocked = 0;
  check(::ioctl(master.get(), TIOCSPTLCK, &unlocked) == 0, "unlock the terminal");
  Fd slave(::ioctl(master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  check(bool(slave), "open the terminal");
  // So that programs may open their terminal by name; a failure affects only those.
  if (::fchown(slave.get(), command.user.uid, kTtyGroup) != 0) {
    [[maybe_unused]] int ignored = ::fchown(slave.get(), command.user.uid, command.user.gid);
  }
  ::fchmod(slave.get(), 0620);
  set_terminal_size(master.get(), *command.terminal);
  child = {slave.duplicate(), slave.duplicate(), std::move(slave)};
  ours.input = master.duplicate();
  ours.output = std::move(master);
}

void open_pipes(const Command& command, const SpawnContext& context, Spawned& ours,
                Streams& child) {
  if (command.input) {
    base::Pipe pipe = base::make_pipe();
    child.input = std::move(pipe.read_end);
    ours.input = std::move(pipe.write_end);
    set_nonblocking(ours.input);
  } else {
    child.input = Fd(::fcntl(context.null_fd, F_DUPFD_CLOEXEC, 3));
    check(bool(child.input), "duplicate /dev/null");
  }
  child.output = pipe_to(ours.output);
  child.error = command.merged ? child.output.duplicate() : pipe_to(ours.error);
  // So that the command may open its streams by name, as /dev/stdout: that checks the pipe's mode.
  for (const Fd* end : {command.input ? &child.input : nullptr, &child.output, &child.error}) {
    if (end) check(::fchown(end->get(), command.user.uid, command.user.gid) == 0, "set up a pipe");
  }
}

[[noreturn]] void give_up(int status_fd, StartStep step) {
  StatusRecord record{step, errno};
  [[maybe_unused]] ssize_t ignored = ::write(status_fd, &record, sizeof record);
  ::_exit(127);
}

void require(bool ok, int status_fd, StartStep step) {
  if (!ok) give_up(status_fd, step);
}

void reset_signals() {
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &standard, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// The command must not inherit the warden's -1000. The warden is not dumpable, so /proc/self
// belongs to the host's root: become dumpable for this one write. Nothing can be stolen meanwhile:
// only the streams and the status pipe are open, and exec makes the command dumpable anyway.
void reset_oom_score() {
  for (int attempt = 0; attempt < 2; ++attempt) {
    Fd file(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
    if (file) {
      [[maybe_unused]] ssize_t ignored = ::write(file.get(), "0", 1);
      break;
    }
    if (errno != EACCES || ::prctl(PR_SET_DUMPABLE, 1) != 0) break;
  }
  ::prctl(PR_SET_DUMPABLE, 0);
}

void set_limits(const SpawnContext& context) {
  ::umask(022);
  const rlimit no_core{0, 0};
  require(::setrlimit(RLIMIT_CORE, &no_core) == 0, kStatusFd, StartStep::limits);
  require(::setrlimit(RLIMIT_NOFILE, &context.open_files) == 0, kStatusFd, StartStep::limits);
  reset_oom_score();
}

void become_user(const User& user) {
  // An unprivileged warden can run commands only as itself.
  if (::getuid() != 0 && ::getuid() == user.uid) return;
  require(::setgroups(1, &user.gid) == 0, kStatusFd, StartStep::groups);
  require(::setresgid(user.gid, user.gid, user.gid) == 0, kStatusFd, StartStep::groups);
  require(::setresuid(user.uid, user.uid, user.uid) == 0, kStatusFd, StartStep::user);
}

[[noreturn]] void execute(const Preparation& prepared) {
  int worst = ENOENT;
  for (const std::string& path : prepared.candidates) {
    ::execve(path.c_str(), prepared.argv.data(), prepared.environment.data());
    if (errno == ENOENT && ::access(path.c_str(), F_OK) == 0) {
      errno = ENOENT;
      give_up(kStatusFd, StartStep::interpreter);
    }
    if (errno == EACCES) worst = EACCES;
    if (errno != EACCES && errno != ENOENT && errno != ENOTDIR)
      give_up(kStatusFd, StartStep::execute);
  }
  errno = worst;
  give_up(kStatusFd, StartStep::execute);
}

// Creates a process group in the terminal's foreground. A background caller would be stopped,
// unless the signal is blocked.
void take_foreground(const Preparation& prepared) {
  const int status = prepared.status_write.get();
  sigset_t stop;
  ::sigemptyset(&stop);
  ::sigaddset(&stop, SIGTTOU);
  ::sigprocmask(SIG_BLOCK, &stop, nullptr);
  require(::setpgid(0, 0) == 0, status, StartStep::session);
  require(::tcsetpgrp(prepared.child.input.get(), ::getpid()) == 0, status, StartStep::terminal);
}

// The order matters. Joining comes first, so that nothing runs outside the group to be killed.
// Descriptors are closed before touching anything of the sandbox: then a directory such as
// /proc/self/fd/7/.. names nothing. The user changes before chdir and exec, so that both use the
// user's permissions, not the warden's.
[[noreturn]] void run_child(const Command& command, const SpawnContext& context,
                            const Preparation& prepared) {
  int status = prepared.status_write.get();
  for (const Fd& group : command.join_fds) {
    require(::write(group.get(), "0", 1) == 1, status, StartStep::join);
  }
  StatusRecord hello{StartStep::pid, ::getpid()};
  require(::write(status, &hello, sizeof hello) == sizeof hello, status, StartStep::session);
  if (command.terminal) {
    take_foreground(prepared);
  } else {
    require(::setsid() >= 0, status, StartStep::session);
  }
  reset_signals();
  // All of the warden's descriptors are above 2 (main.cc ensures it), so none is overwritten.
  require(::dup2(prepared.child.input.get(), 0) == 0, status, StartStep::streams);
  require(::dup2(prepared.child.output.get(), 1) == 1, status, StartStep::streams);
  require(::dup2(prepared.child.error.get(), 2) == 2, status, StartStep::streams);
  if (status != kStatusFd)
    require(::dup3(status, kStatusFd, O_CLOEXEC) >= 0, status, StartStep::streams);
  require(::close_range(kStatusFd + 1, ~0U, 0) == 0, kStatusFd, StartStep::streams);
  set_limits(context);
  become_user(command.user);
  require(::chdir(command.directory.c_str()) == 0, kStatusFd, StartStep::directory);
  execute(prepared);
}

// The rest of a session leader: it keeps nothing open and waits for its release.
[[noreturn]] void lead_session(int release) {
  ::prctl(PR_SET_NAME, "moorage-session");
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::dup2(release, 0);
  ::close_range(1, ~0U, 0);
  char byte;
  while (::read(0, &byte, 1) < 0 && errno == EINTR) {
  }
  ::_exit(0);
}

// Runs in a child of the command's future parent.
[[noreturn]] void start_session(const Command& command, const SpawnContext& context,
                                const Preparation& prepared) {
  const int status = prepared.status_write.get();
  require(::setsid() >= 0, status, StartStep::session);
  require(::ioctl(prepared.child.input.get(), TIOCSCTTY, 0) == 0, status, StartStep::terminal);
  const auto pid = static_cast<pid_t>(::syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0));
  require(pid >= 0, status, StartStep::fork);
  if (pid == 0) run_child(command, context, prepared);
  [[maybe_unused]] ssize_t ignored = ::write(prepared.leader.write_end.get(), &pid, sizeof pid);
  lead_session(prepared.release.get());
}

// The command's pid; -1: its session could not be created, as `status` reports.
pid_t start_session_child(const Command& command, const SpawnContext& context,
                          const Preparation& prepared) {
  const pid_t leader = ::fork();
  if (leader == 0) start_session(command, context, prepared);
  require(leader > 0, prepared.status_write.get(), StartStep::fork);
  ::close(prepared.leader.write_end.get());
  pid_t pid = -1;
  return ::read(prepared.leader.read_end.get(), &pid, sizeof pid) == sizeof pid ? pid : -1;
}

[[noreturn]] void run_subreaper_child(const Command& command, const SpawnContext& context,
                                      const Preparation& prepared) {
  become_subreaper();
  pid_t pid = command.terminal ? start_session_child(command, context, prepared) : ::fork();
  require(pid >= 0 || command.terminal, prepared.status_write.get(), StartStep::fork);
  if (pid == 0) run_child(command, context, prepared);
  run_subreaper(pid, prepared.report_write.get(), context.most_left);
}

}  // namespace

void set_terminal_size(int master, const TerminalSize& size) {
  winsize window{};
  window.ws_col = size.columns;
  window.ws_row = size.rows;
  check(::ioctl(master, TIOCSWINSZ, &window) == 0, "set the terminal's size");
}

Spawned spawn(const Command& command, const SpawnContext& context) {
  Spawned ours;
  Preparation prepared;
  if (command.terminal) {
    open_terminal(command, ours, prepared.child);
    base::Pipe session = base::make_pipe();
    ours.session = std::move(session.write_end);
    prepared.release = std::move(session.read_end);
    prepared.leader = base::make_pipe();
  } else {
    open_pipes(command, context, ours, prepared.child);
  }
  prepared.status_write = pipe_to(ours.status);
  if (command.subreaper) prepared.report_write = pipe_to(ours.report);
  for (const std::string& word : command.argv)
    prepared.argv.push_back(const_cast<char*>(word.c_str()));
  for (const std::string& variable : command.environment) {
    prepared.environment.push_back(const_cast<char*>(variable.c_str()));
  }
  prepared.argv.push_back(nullptr);
  prepared.environment.push_back(nullptr);
  prepared.candidates = candidates(command);
  ours.child = ::fork();
  check(ours.child >= 0, "create a process");
  if (ours.child == 0) {
    if (command.subreaper) run_subreaper_child(command, context, prepared);
    if (command.terminal) start_session(command, context, prepared);
    run_child(command, context, prepared);
  }
  return ours;
}

}  // namespace moorage::warden
