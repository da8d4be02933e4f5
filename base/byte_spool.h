// From a thread of this process that makes bytes to one that sends them on, through an unnamed
// file: the maker, which holds a lock or a pool thread, finishes early, however slow the client is.
// Bytes read are freed on the disk. The writer waits for the reader, briefly, only if the disk is
// full. The writer's error reaches the reader, so a truncated stream never looks complete. A reader
// that is far too slow is cut off.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/os/fd.h"

namespace moorage::base {

// The lowest rate allowed for a reader, measured once it has held bytes for `grace`.
struct LeastRate {
  std::chrono::nanoseconds grace = std::chrono::minutes(2);
  double bytes_per_s = 4 << 10;  // a modem's speed
};

class ByteSpool {
 public:
  ByteSpool(Fd file, std::function<bool()> has_room, LeastRate least = {});

  // The writer's side. Throws unavailable if the reader has left, resource_exhausted if the reader
  // is slow and the disk is full.
  void write(std::string_view bytes);
  void finish();                   // everything was written
  void fail(const Error& reason);  // the reader gets this instead of the end

  // The reader's side: nullopt, no bytes yet; empty, the end. Throws the writer's error after all
  // bytes written before it; deadline_exceeded if it reads too slowly.
  std::optional<std::string> try_read(size_t max_bytes);
  void leave();

  uint64_t held_bytes();  // on the disk

 private:
  void require_pace();
  void wait_for_room(std::unique_lock<std::mutex>& lock);

  const Fd file_;
  const std::function<bool()> has_room_;
  const LeastRate least_;
  std::mutex mutex_;
  std::condition_variable read_on_;
  uint64_t written_bytes_ = 0;
  uint64_t read_bytes_ = 0;
  uint64_t given_back_bytes_ = 0;
  // Used by the reader only: when it got its last bytes, and its total time with bytes in hand.
  std::optional<std::chrono::steady_clock::time_point> got_;
  std::chrono::nanoseconds busy_{0};
  std::chrono::milliseconds waited_{0};  // used by the writer only
  bool done_ = false;
  bool left_ = false;
  std::optional<Error> error_;
};

}  // namespace moorage::base
