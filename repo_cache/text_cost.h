// The memory that a text diff of two blobs takes, charged before it begins. libgit2 1.5 holds both
// whole, plus a record, class and tables per line, and one more record per line of the result: 165
// bytes a line at most, measured with lines that are all different and all changed. "33 million
// empty lines" is a file of 32 MiB, and would take 3.5 GB.
#pragma once

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
  // For a binary patch of two such files, besides their contents and its text.
  static uint64_t binary_bytes(uint64_t before, uint64_t after);
  // Reserves them; the share must not outlive this.
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

// The text of a patch in progress, charged as it grows. Its buffer is as large as the text may
// become: the kernel gives a page of it when it is written, and a buffer that grows would be in
// memory twice.
struct PatchText {
  PatchText(base::LookMemory& whole, uint64_t most_memory, uint64_t max)
      : memory(whole, most_memory), max_bytes(max) {
    bytes.reserve(max);
  }

  bool make_room(size_t more) {
    const size_t needed = bytes.size() + more;
    if (needed > max_bytes) return false;
    if (needed <= memory.used_bytes()) return true;
    return memory.take(needed - memory.used_bytes());
  }

  base::LookMemory memory;
  std::string bytes;
  const uint64_t max_bytes;
  bool full = false;
};

// Callback of git_patch_print, with a PatchText; not 0 when that is full.
int append_line(const git_diff_delta* delta, const git_diff_hunk* hunk, const git_diff_line* line,
                void* payload);

}  // namespace moorage::repo_cache
