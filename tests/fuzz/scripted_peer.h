// The other end of a stream (tests/link/stream_peer.h) as the input of a fuzz target wants it: most
// of its frames are valid, others are raw bytes. A target that links it ends when a handler of its
// event loop throws, which the loop only reports (link with LINKER:--wrap=write).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fuzz.h"
#include "stream_peer.h"

namespace moorage::fuzz {

class ScriptedPeer : public test::StreamPeer {
 public:
  using StreamPeer::StreamPeer;
  void add_raw(std::string_view bytes);
  void add_raw_frame(uint8_t kind, uint32_t channel, std::string_view payload);
  void send(uint32_t channel, std::string_view bytes);  // as much as the channel takes
  // Reads; only after raw bytes may the two codecs be at odds.
  void receive(const Take& take);

 private:
  bool raw_ = false;
};

// A frame of base/wire/network_relay.h: with one of these texts, or any other.
std::string relayed(Script& script, std::span<const char* const> lines,
                    std::span<const char* const> places);

}  // namespace moorage::fuzz
