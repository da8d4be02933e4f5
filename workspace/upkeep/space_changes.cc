#include "workspace/upkeep/space_changes.h"

#include <algorithm>

namespace moorage::workspace {
namespace {

void add(layers::QuotaUse& sum, const base::Space& from, const base::Space& to) {
  sum.bytes += from.free_bytes - std::min(from.free_bytes, to.free_bytes);
  sum.files = *sum.files + from.free_inodes - std::min(from.free_inodes, to.free_inodes);
}

}  // namespace

SpaceMoves::Sums SpaceMoves::look() {
  const std::lock_guard lock(mutex_);
  const base::Space now = base::file_system_space(path_);
  const base::Space before = last_.value_or(now);
  add(sums_.lost, before, now);
  add(sums_.gained, now, before);
  last_ = now;
  return sums_;
}

}  // namespace moorage::workspace
