// The memory that a text diff of two blobs takes, charged before it begins. libgit2 1.5 holds both
// whole, plus a record, class and tables per line, and one more record per line of the result: 165
// bytes a line at most, measured with lines that are all different and all changed. "33 million
// empty lines" is a file of 32 MiB, and would take 3.5 GB.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "base/look_memory.h"
#include "repo_cache/git_handles.h"

namespace moorage::repo_cache {

inline constexpr uint64_t kDiffLineBytes = 176;

class TextCost {
 public:
  enum class Fits {
    text,
    binary,      // it contains NUL, or has too many lines
    not_at_all,  // a file is over max_file_bytes, or memory is short
  };
  // Holds the charge until its end.
  TextCost(git_odb* odb, const git_diff_delta& delta, uint64_t max_file_bytes,
           base::LookMemory& memory);
  Fits fits() const;
  bool lacks_room() const;                           // it would be text if others used less memory
  uint64_t bytes_before() const { return before_; }  // 0 without a file, and for submodules
  uint64_t bytes_after() const { return after_; }
  // Reserves memory for a binary patch of the two; it must not outlive this.
  bool take_binary(std::optional<base::MemoryShare>& share) const;

 private:
  std::optional<uint64_t> lines() const;  // empty: binary

  git_odb* odb_;
  const git_diff_delta& delta_;
  base::LookMemory& memory_;
  const uint64_t before_;
  const uint64_t after_;
  std::optional<base::MemoryShare> contents_;
  std::optional<base::MemoryShare> lines_;
  uint64_t lines_bytes_ = 0;
};

// The patch of one file of a diff.
GitPatch patch_at(git_diff* diff, size_t index);

// The text of a patch in progress, charged as it grows.
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
