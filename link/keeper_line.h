// The line between the keeper and its worker: messages of one JSON object, with at most one
// descriptor (SOCK_SEQPACKET). The keeper sends the listener, the journals that earlier workers
// left, the sandbox's network (inside_sockets.h) and the line of it, then `go`. A worker sends
// `key` with the end of a pipe when it needs the provider's key, `keep` before a command starts,
// `drop`, `network_line` when the daemon gave a new one, and `connected` when it has proved to
// work. What a worker has sent arrives even if it is killed right afterwards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/os/fd.h"

namespace moorage::link {

struct LineMessage {
  enum class Kind { listener, key, keep, drop, go, connected, name_space, network_line };
  Kind kind = Kind::go;
  std::string text = {};    // the tag of a journal
  uint64_t room_bytes = 0;  // of a journal
  base::Fd fd = {};         // the listener, a pipe, a journal, a network namespace, a line
};

void send_line(int line, const LineMessage& message);
// Empty: the other side is gone. Throws corrupted.
std::optional<LineMessage> receive_line(int line);

}  // namespace moorage::link
