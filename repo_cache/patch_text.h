// The text of a patch in progress, charged as it grows.
#pragma once

#include <git2.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/look_memory.h"
#include "repo_cache/git_handles.h"

namespace moorage::repo_cache {

// The patch of one file of a diff.
GitPatch patch_at(git_diff* diff, size_t index);

struct PatchText {
  PatchText(base::LookMemory& charged, uint64_t max) : memory(charged), max_bytes(max) {}

  // A growing string has both its old and its new buffer for a while.
  bool make_room(size_t more) {
    const size_t needed = bytes.size() + more;
    if (needed > max_bytes) return false;
    if (needed <= bytes.capacity()) return true;
    const size_t before = bytes.capacity();
    const size_t room = std::min<size_t>(std::max(before + before / 4, needed + 4096), max_bytes);
    if (!memory.take(room)) return false;
    bytes.reserve(room);
    if (taken) memory.give(taken);
    taken = room;
    return true;
  }

  std::string bytes;
  base::LookMemory& memory;
  const uint64_t max_bytes;
  size_t taken = 0;
  bool full = false;
};

// Callback of git_patch_print, with a PatchText; not 0 when that is full.
int append_line(const git_diff_delta* delta, const git_diff_hunk* hunk, const git_diff_line* line,
                void* payload);

}  // namespace moorage::repo_cache
