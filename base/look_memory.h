// Limits the memory for reading agent-written trees: per operation, and in total for the process.
// The agent decides how many names there are, how long they are and what files contain, but all
// users share the daemon. No one waits for room: an operation that gets none skips the rest and
// reports a truncated result. One operation charges all it holds to one LookMemory, in parts if it
// returns some of it earlier: so crowded() means that others took the room, and not its own parts.
// After a large one, the heap's free pages return to the system; glibc would keep tens of MiB.
#pragma once

#include <algorithm>
#include <cstdint>

namespace moorage::base {

inline constexpr uint64_t kAllLooksBytes = 96 << 20;

class LookMemory {
 public:
  explicit LookMemory(uint64_t own_bytes) : left_(own_bytes) {}
  // A part of another one, which outlives it and is charged as well.
  LookMemory(LookMemory& whole, uint64_t own_bytes) : whole_(&whole), left_(own_bytes) {}
  ~LookMemory();  // returns all of it; declare it before the charged objects
  LookMemory(LookMemory&&) = delete;

  bool take(uint64_t bytes);  // false: changes neither
  void give(uint64_t bytes);  // returns part of the taken bytes
  uint64_t used_bytes() const { return used_; }
  uint64_t left_bytes() const { return whole_ ? std::min(left_, whole_->left_bytes()) : left_; }
  // A take() failed that other operations left no room for.
  bool crowded() const { return crowded_; }
  static uint64_t all_used_bytes();

 private:
  LookMemory* const whole_ = nullptr;
  uint64_t left_;
  uint64_t used_ = 0;
  uint64_t most_ = 0;
  bool crowded_ = false;
};

// A part of it as long as this lives; false: no room.
class MemoryShare {
 public:
  MemoryShare(LookMemory& memory, uint64_t bytes)
      : memory_(memory), bytes_(bytes), taken_(memory.take(bytes)) {}
  ~MemoryShare() {
    if (taken_) memory_.give(bytes_);
  }
  MemoryShare(MemoryShare&&) = delete;
  explicit operator bool() const { return taken_; }

 private:
  LookMemory& memory_;
  const uint64_t bytes_;
  const bool taken_;
};

}  // namespace moorage::base
