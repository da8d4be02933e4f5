// From a thread of this process that makes bytes to one that sends them on, through a file without
// a name: whoever makes them, with a lock or a thread of a pool, is done as soon as it can,
// whatever the client's speed. What was taken is given back to the disk. Only where the disk has no
// room for what waits does the writer wait for the reader, and not for long. How the writer ended
// goes along, so a cut is never taken for an end. A reader that takes next to nothing is let go.
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
#include "base/fd.h"

namespace moorage::workspace {

// The least that a reader takes, in bytes a second, once it had the bytes before it so long.
struct LeastRate {
  std::chrono::nanoseconds grace = std::chrono::minutes(2);
  double bytes_per_s = 4 << 10;  // as a modem had
};

class ByteSpool {
 public:
  ByteSpool(base::Fd file, std::function<bool()> has_room, LeastRate least = {});

  // The writer's side. Throws unavailable when the reader has left, resource_exhausted when it is
  // slow and there is no room.
  void write(std::string_view bytes);
  void finish();                         // all was written
  void fail(const base::Error& reason);  // what the reader gets instead of the end

  // The reader's side: nothing, there is nothing yet; empty, the end. Throws what the writer failed
  // with, after all that it had written; deadline_exceeded when it comes back too late for more.
  std::optional<std::string> try_read(size_t max_bytes);
  void leave();

  uint64_t held_bytes();  // of the disk

 private:
  void require_pace();
  void wait_for_room(std::unique_lock<std::mutex>& lock);

  const base::Fd file_;
  const std::function<bool()> has_room_;
  const LeastRate least_;
  std::mutex mutex_;
  std::condition_variable read_on_;
  uint64_t written_bytes_ = 0;
  uint64_t read_bytes_ = 0;
  uint64_t given_back_bytes_ = 0;
  // The reader's alone: when it got its last bytes, and how long it had them, all in all.
  std::optional<std::chrono::steady_clock::time_point> got_;
  std::chrono::nanoseconds busy_{0};
  std::chrono::milliseconds waited_{0};  // the writer's alone
  bool done_ = false;
  bool left_ = false;
  std::optional<base::Error> error_;
};

}  // namespace moorage::workspace
