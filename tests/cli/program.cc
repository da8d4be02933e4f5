#include "program.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>
#include <stdexcept>
#include <thread>

#include "base/error.h"

namespace moorage::test {
namespace {

std::string read_all(int fd) {
  std::string text;
  char piece[65536];
  for (ssize_t got; (got = ::read(fd, piece, sizeof piece)) > 0;) {
    text.append(piece, static_cast<size_t>(got));
  }
  return text;
}

}  // namespace

void Running::spawn(const std::vector<std::string>& words, const RunOptions& options, int in,
                    int out, int err) {
  std::vector<std::string> argv{MOORAGE_PROGRAM},
      environment{"PATH=/usr/bin:/bin", "HOME=/nonexistent"};
  argv.insert(argv.end(), words.begin(), words.end());
  environment.push_back("MOORAGE_SOCKET=" + options.socket);
  for (const auto& [name, value] : options.environment) environment.push_back(name + "=" + value);
  std::vector<char*> argv_pointers, environment_pointers;
  for (std::string& word : argv) argv_pointers.push_back(word.data());
  for (std::string& entry : environment) environment_pointers.push_back(entry.data());
  argv_pointers.push_back(nullptr);
  environment_pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out, 1);
  ::posix_spawn_file_actions_adddup2(&actions, err, 2);
  for (const int fd : options.closed) ::posix_spawn_file_actions_addclose(&actions, fd);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  for (const int number : options.ignored) {
    ::sigdelset(&all, number);
    ::signal(number, SIG_IGN);
  }
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int failure = ::posix_spawn(&pid_, MOORAGE_PROGRAM, &actions, &attributes,
                                    argv_pointers.data(), environment_pointers.data());
  for (const int number : options.ignored) ::signal(number, SIG_DFL);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (failure != 0) base::throw_errno("spawn moorage", failure);
}

Running::Running(const std::vector<std::string>& words, const RunOptions& options,
                 bool on_terminal) {
  base::Pipe err = base::make_pipe();
  err_ = std::move(err.read_end);
  if (on_terminal) {
    int master = -1, slave = -1;
    winsize size{30, 90, 0, 0};
    base::check(::openpty(&master, &slave, nullptr, nullptr, &size), "openpty");
    terminal_.reset(master);
    const base::Fd slave_fd(slave);
    termios modes{};
    base::check(::tcgetattr(slave, &modes), "look at the terminal");
    modes_before_ = modes.c_lflag;
    ::fcntl(master, F_SETFD, FD_CLOEXEC);
    ::fcntl(slave, F_SETFD, FD_CLOEXEC);
    spawn(words, options, slave, slave, err.write_end.get());
    return;
  }
  base::Pipe in = base::make_pipe(), out = base::make_pipe();
  in_ = std::move(in.write_end);
  out_ = std::move(out.read_end);
  spawn(words, options, in.read_end.get(), out.write_end.get(), err.write_end.get());
}

Running::~Running() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Running::signal(int number) const { ::kill(pid_, number); }

void Running::write(std::string_view bytes) const {
  base::write_all(terminal_ ? terminal_.get() : in_.get(), bytes);
}

void Running::close_input() { in_.reset(); }

int Running::unread_input() const {
  int bytes = 0;
  base::check(::ioctl(in_.get(), FIONREAD, &bytes), "count the unread input");
  return bytes;
}

void Running::close_output() { out_.reset(); }

void Running::close_terminal() { terminal_.reset(); }

std::string Running::read_until(std::string_view text) {
  const int fd = terminal_ ? terminal_.get() : out_.get();
  while (read_.find(text) == std::string::npos) {
    char piece[65536];
    if (!base::wait_readable(fd, 20'000))
      throw std::runtime_error("never printed: " + std::string(text));
    const ssize_t got = ::read(fd, piece, sizeof piece);
    if (got <= 0)
      throw std::runtime_error("ended before: " + std::string(text) + " after: " + read_);
    read_.append(piece, static_cast<size_t>(got));
  }
  return read_;
}

void order_checks() {
  static std::mutex checks;
  const std::lock_guard lock(checks);
}

Ran Running::finish() {
  Ran ran;
  std::thread err_reader([&] { ran.err = read_all(err_.get()); });
  const int out = terminal_ ? terminal_.get() : out_.get();
  if (out >= 0) ran.out = read_ + read_all(out);
  err_reader.join();
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  order_checks();
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

Ran run_moorage(const std::vector<std::string>& words, const RunOptions& options) {
  // The program may end without reading all of its input.
  ::signal(SIGPIPE, SIG_IGN);
  Running program(words, options);
  std::thread feeder([&] {
    try {
      program.write(options.input);
    } catch (const base::Error&) {
    }
    program.close_input();
  });
  const Ran ran = program.finish();
  feeder.join();
  return ran;
}

}  // namespace moorage::test
