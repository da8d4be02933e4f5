// The byte stream between moorage-link here and moorage-outpost on another machine: many channels
// in one stream, so that a slow one does not stop the others. Codec and account of windows, without
// I/O; both programs use it. A frame:
//
//   offset size
//   0      1    type (MuxKind)
//   1      3    zero
//   4      4    channel, little endian, from 1
//   8      4    payload bytes, little endian, at most kMuxMaxPayload
//   12     ..   payload
//
//   open    a request in JSON. Only the opener (link) sends it; numbers of channels rise
//   data    at least one byte, at most the window that the receiver has granted
//   credit  u32, little endian: the window grows by that many bytes
//   end     no payload: the sender sends no more data; a channel is over when both have ended it
//   reset   JSON {"code","message"}: the channel is over at once, in both directions
//
// A channel's window is kMuxWindow in each direction. The receiver of a pack grants more at
// once (grant). The peer is hostile: a frame that breaks these rules is Error(corrupted), and then
// the stream must end. Frames of a channel that is already over are skipped, as they may have
// crossed a reset.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace moorage::base {

enum class MuxKind : uint8_t { open = 1, data = 2, credit = 3, end = 4, reset = 5 };

inline constexpr size_t kMuxHeaderBytes = 12;
inline constexpr size_t kMuxMaxPayload = 64 << 10;
inline constexpr uint32_t kMuxWindow = 256 << 10;      // of every channel at first
inline constexpr uint32_t kMuxPackWindow = 1 << 20;    // of a channel that receives a pack
inline constexpr uint32_t kMuxMaxWindow = 16 << 20;    // more credit breaks the rules
inline constexpr size_t kMuxMaxChannels = 2048;        // at the same time
inline constexpr size_t kMuxEnoughOutput = 256 << 10;  // in output(): write it before sending more
// Answers to what the peer sends (credit, resets, new channels) wait in output() whatever its size.
// A peer that makes us answer and does not read that much of it must be given up.
inline constexpr size_t kMuxMostOutput = 16 << 20;

struct MuxFrame {
  MuxKind kind = MuxKind::data;
  uint32_t channel = 0;
  std::string_view payload;  // of open, data, reset; valid until the next call of next()
};

class Mux {
 public:
  enum class Side { opener, answerer };
  explicit Mux(Side side) : side_(side) {}

  // Takes bytes off the front of `bytes` until they complete a frame that the caller must see;
  // empty when all are taken. Never holds more than one frame. Throws corrupted: end the stream. A
  // credit frame says that room() of this channel grew.
  std::optional<MuxFrame> next(std::string_view& bytes);

  // The opener only. Throws resource_exhausted at kMuxMaxChannels.
  uint32_t open(std::string_view request);
  bool is_open(uint32_t channel) const { return channels_.contains(channel); }
  size_t channels() const { return channels_.size(); }

  // For a channel that is over, these do nothing and room() is 0.
  size_t room(uint32_t channel) const;                  // bytes that may be sent now; 0 after end()
  void send(uint32_t channel, std::string_view bytes);  // at most room()
  void end(uint32_t channel);
  void reset(uint32_t channel, const Error& reason);
  // The received bytes have left this program, so that the peer may send as many again. Never
  // before: that is the only bound of what waits here.
  void consumed(uint32_t channel, size_t bytes);
  void grant(uint32_t channel, uint32_t bytes);  // widens the window for what is received

  // Frames to write to the stream, in order. The caller erases what it has written.
  std::string& output() { return output_; }
  const std::string& output() const { return output_; }

 private:
  struct Channel {
    uint64_t send_window = kMuxWindow;
    uint64_t receive_window = kMuxWindow;  // as the peer may know it at least
    uint64_t consumed = 0;                 // and not yet given back
    bool ended = false;                    // by this side
    bool peer_ended = false;
  };
  struct Head {
    MuxKind kind = MuxKind::data;
    uint32_t channel = 0;
    uint32_t payload_bytes = 0;
  };

  Head parse_head(std::string_view bytes) const;
  bool accept(const Head& head, std::string_view payload);
  void accept_open(const Head& head);
  bool accept_end(Channel& channel, uint32_t number);
  Channel* find(uint32_t number);
  void put(MuxKind kind, uint32_t channel, std::string_view payload);

  Side side_;
  uint32_t newest_ = 0;  // the highest number of a channel so far
  std::map<uint32_t, Channel> channels_;
  std::string partial_;     // the beginning of a frame
  bool delivered_ = false;  // partial_ holds the frame that was returned last
  std::string output_;
};

// The error that a reset carries. Its text is the peer's: shortened, and made printable where
// shown.
Error mux_reset_reason(std::string_view payload);

}  // namespace moorage::base
