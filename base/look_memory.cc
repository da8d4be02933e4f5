#include "base/look_memory.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cassert>

namespace moorage::base {
namespace {

constexpr uint64_t kLargeLookBytes = 8 << 20;

std::atomic<uint64_t> all_used{0};

}  // namespace

LookMemory::~LookMemory() {
  give(used_);
  if (most_ > kLargeLookBytes) malloc_trim(0);
}

bool LookMemory::take(uint64_t bytes) {
  if (bytes > left_) return false;
  if (all_used.fetch_add(bytes) + bytes > kAllLooksBytes) {
    all_used.fetch_sub(bytes);
    crowded_ = true;
    return false;
  }
  left_ -= bytes;
  used_ += bytes;
  most_ = std::max(most_, used_);
  return true;
}

void LookMemory::give(uint64_t bytes) {
  assert(bytes <= used_);
  all_used.fetch_sub(bytes);
  left_ += bytes;
  used_ -= bytes;
}

uint64_t LookMemory::all_used_bytes() { return all_used; }

}  // namespace moorage::base
