// What looks at agent-written trees may keep in memory: so much in one look, so much in all looks
// of the process at the same time. The agent decides how many names there are, how long they are
// and what is in the files; the daemon is everybody's. Nobody waits for room: a look that gets none
// leaves the rest out and says that it is truncated. When a large look ends, the heap's free pages
// go back to the system: glibc would keep tens of MiB of them.
#pragma once

#include <cstdint>

namespace moorage::base {

inline constexpr uint64_t kAllLooksBytes = 96 << 20;

class LookMemory {
 public:
  explicit LookMemory(uint64_t own_bytes) : left_(own_bytes) {}
  ~LookMemory();  // gives all of it back; declare it before what it is charged for
  LookMemory(const LookMemory&) = delete;
  LookMemory& operator=(const LookMemory&) = delete;

  bool take(uint64_t bytes);  // false: neither was changed
  void give(uint64_t bytes);  // part of what was taken
  uint64_t used_bytes() const { return used_; }
  static uint64_t all_used_bytes();

 private:
  uint64_t left_;
  uint64_t used_ = 0;
  uint64_t most_ = 0;
};

// A part of it for as long as this lives; false: there is no room.
class MemoryShare {
 public:
  MemoryShare(LookMemory& memory, uint64_t bytes)
      : memory_(memory), bytes_(bytes), taken_(memory.take(bytes)) {}
  ~MemoryShare() {
    if (taken_) memory_.give(bytes_);
  }
  MemoryShare(const MemoryShare&) = delete;
  MemoryShare& operator=(const MemoryShare&) = delete;
  explicit operator bool() const { return taken_; }

 private:
  LookMemory& memory_;
  const uint64_t bytes_;
  const bool taken_;
};

}  // namespace moorage::base
