#include "scripted_peer.h"

#include <unistd.h>

#include <cstdlib>

#include "base/little_endian.h"
#include "base/wire/network_relay.h"

extern "C" ssize_t __real_write(int fd, const void* bytes, size_t size);
// An event loop writes there only what a handler threw, and goes on.
extern "C" ssize_t __wrap_write(int fd, const void* bytes, size_t size) {
  const ssize_t written = __real_write(fd, bytes, size);
  if (fd == STDERR_FILENO) abort();
  return written;
}

namespace moorage::fuzz {

void ScriptedPeer::add_raw(std::string_view bytes) {
  raw_ = true;
  unsent += bytes;
}

void ScriptedPeer::add_raw_frame(uint8_t kind, uint32_t channel, std::string_view payload) {
  std::string frame;
  base::append_number(frame, uint32_t{kind});
  base::append_number(frame, channel);
  base::append_number(frame, static_cast<uint32_t>(payload.size()));
  add_raw(frame.append(payload));
}

void ScriptedPeer::send(uint32_t channel, std::string_view bytes) {
  mux.send(channel, bytes.substr(0, mux.room(channel)));
}

void ScriptedPeer::receive(const Take& take) {
  const bool is_refused = refused([&] { read(take); });
  require(!is_refused || raw_, "what this side sends keeps the rules");
}

std::string relayed(Script& script, std::span<const char* const> lines,
                    std::span<const char* const> places) {
  const uint8_t what = script.byte();
  const auto kind = static_cast<base::RelayKind>(1 + what % 3);
  if (what & 128) return base::relay_frame(kind, script.piece());
  if (kind == base::RelayKind::line)
    return base::relay_frame(kind, lines[script.below(lines.size())]);
  if (kind == base::RelayKind::place && !places.empty())
    return base::relay_frame(kind, places[script.below(places.size())]);
  return base::relay_frame(kind, "ABCDEF" + std::string(20, 'q'));
}

}  // namespace moorage::fuzz
