// What looks at agent-written trees may remember: so much in one look, so much in all looks of the
// process at the same time. The agent decides how many names there are and how long they are; the
// daemon is everybody's. Nobody waits for room: a look that gets none leaves the rest out and says
// that it is truncated.
#pragma once

#include <cstdint>

namespace moorage::workspace {

inline constexpr uint64_t kAllLooksBytes = 96 << 20;

class LookMemory {
 public:
  explicit LookMemory(uint64_t own_bytes) : left_(own_bytes) {}
  ~LookMemory();  // gives all of it back
  LookMemory(const LookMemory&) = delete;
  LookMemory& operator=(const LookMemory&) = delete;

  bool take(uint64_t bytes);  // false: neither was changed
  void give(uint64_t bytes);  // part of what was taken
  uint64_t used_bytes() const { return used_; }
  static uint64_t all_used_bytes();

 private:
  uint64_t left_;
  uint64_t used_ = 0;
};

}  // namespace moorage::workspace
