// One `ssh` of the system as a child process: its standard input and output are one end of a
// socket. Host keys, keys, agents, jump hosts and ~/.ssh/config are its business; it never asks
// anything and never accepts an unknown host key. What the remote machine writes to standard error
// is hostile: it is bounded, made printable, and only used to say why a connection ended.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "link/driver.h"

namespace moorage::link {

struct SshTarget {
  std::string name;         // for messages
  std::string destination;  // user@host, or a Host of the configuration
  std::string config_file;  // -F; empty: ssh's own
};

class SshChild : public Run {
 public:
  // `command` is for the remote user's shell. Nothing of a sandbox's words may be in `target`.
  SshChild(const SshTarget& target, const std::string& command);
  ~SshChild() override;  // kills ssh
  int stream() const override { return stream_.get(); }
  std::optional<Error> reason() override;

  // Waits for its exit code; -1: ended by a signal, or not before the deadline.
  int wait(Deadline deadline);

 private:
  void drain_errors();
  bool reap(bool block);

  SshTarget target_;
  base::Fd stream_;
  base::Fd errors_;
  pid_t pid_ = -1;
  std::optional<int> status_;
  std::string text_;  // of standard error: its end
};

// The error behind ssh's exit code and words; empty: it ended well.
std::optional<Error> ssh_failure(const SshTarget& target, int exit_code, std::string_view words);

}  // namespace moorage::link
