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
  if (bytes > left_bytes()) return false;
  if (all_used.fetch_add(bytes) + bytes > kAllLooksBytes) {
    all_used.fetch_sub(bytes);
    crowded_ = true;
    return false;
  }
  for (LookMemory* charged = this; charged; charged = charged->whole_) {
    charged->left_ -= bytes;
    charged->used_ += bytes;
    charged->most_ = std::max(charged->most_, charged->used_);
  }
  return true;
}

void LookMemory::give(uint64_t bytes) {
  all_used.fetch_sub(bytes);
  for (LookMemory* charged = this; charged; charged = charged->whole_) {
    assert(bytes <= charged->used_);
    charged->left_ += bytes;
    charged->used_ -= bytes;
  }
}

uint64_t LookMemory::all_used_bytes() { return all_used; }

}  // namespace moorage::base
