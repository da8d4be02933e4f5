// Operations on a running exec (exec.h): input, signals, size, kill.
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/error.h"
#include "warden/exec.h"
#include "warden/process_tree.h"

namespace moorage::warden {
namespace {

constexpr auto kKillAgain = std::chrono::milliseconds(200);

pid_t foreground_group(int master) {
  pid_t group = 0;
  return ::ioctl(master, TIOCGPGRP, &group) == 0 ? group : 0;
}

}  // namespace

void Exec::require_alive() const {
  if (state_ == State::draining || state_ == State::over) {
    throw Error(Code::not_found, "the command has ended");
  }
}

void Exec::send_input(std::optional<uint64_t> offset, std::string_view bytes,
                      InputQueue::Reply reply) {
  require_alive();
  if (!input_) throw Error(Code::conflict, "the command was started without standard input");
  input_->offer(offset, bytes, std::move(reply));
}

void Exec::close_input() {
  require_alive();
  if (input_) input_->close_when_written();
}

void Exec::send_signal(int signal) {
  require_alive();
  if (pid_ == 0) throw Error(Code::unavailable, "the command is still starting", "try again");
  const pid_t foreground = command_.terminal ? foreground_group(outputs_[0].fd.get()) : 0;
  if (foreground > 0) ::kill(-foreground, signal);
  // SIGKILL is for the command itself, regardless of its shell's foreground job.
  if (foreground > 0 && (foreground == pid_ || signal != SIGKILL)) return;
  // Before its setsid the child has no group of its own.
  if (::kill(-pid_, signal) != 0) ::kill(pid_, signal);
}

void Exec::cancel() {
  // While its last output is read, its leftovers are reached here; later by ProcessService.
  if (state_ == State::draining && subreaper_ > 0 && ::kill(subreaper_, SIGUSR1) == 0) return;
  require_alive();
  kill_all();
}

void Exec::kill_all() {
  const bool killed = options_.kill_fd && ::write(options_.kill_fd.get(), "1", 1) == 1;
  if (!killed && subreaper_ > 0) ::kill(subreaper_, SIGUSR1);
  if (!killed && subreaper_ == 0 && pid_ > 0) kill_descendants(pid_);
  if (pid_ > 0) {
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);
  }
  // A process being forked, or a frozen group, may need a second kill.
  kill_again_.start(kKillAgain, [this] { kill_all(); });
}

void Exec::resize(const TerminalSize& size) {
  require_alive();
  if (!command_.terminal) throw Error(Code::conflict, "the command has no terminal");
  set_terminal_size(outputs_[0].fd.get(), size);
}

}  // namespace moorage::warden
