// The sockets through which a sandbox reaches other hosts. The warden only makes them, as a process
// of the sandbox's network namespace, and hands them to moorage-egress outside over a line
// (base/wire/network_line.h); it reads nothing from them. So a program inside finds a resolver at
// 127.0.0.53, and hosts at addresses of 198.18.0.0/15, which the launcher routed to `lo`.
#pragma once

#include <memory>
#include <string>

#include "base/os/fd.h"
#include "base/wire/network_line.h"
#include "warden/io/loop.h"

namespace moorage::warden {

class Network {
 public:
  explicit Network(Loop& loop) : loop_(loop) {}
  // Replaces the former line. Throws if the line is not a SOCK_SEQPACKET unix socket.
  void set_line(Fd line);

 private:
  void on_events();
  bool answer_one();  // false: nothing more for now, or the line is over
  void answer(const base::LineMessage& request);
  void hand_over_resolver();
  void send(const std::string& text, std::span<const int> fds);
  void end_line();

  Loop& loop_;
  Fd udp_;  // of the resolver, kept for the next line: questions wait in them
  Fd tcp_;
  Fd line_;
  std::unique_ptr<Watch> watch_;
};

}  // namespace moorage::warden
