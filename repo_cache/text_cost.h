// The memory that a text diff of two blobs takes, charged before it begins. libgit2 1.5 holds both
// whole, plus a record, class and tables per line, and one more record per line of the result: 165
// bytes a line at most, measured with lines that are all different and all changed. "33 million
// empty lines" is a file of 32 MiB, and would take 3.5 GB.
#pragma once

#include <optional>

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

}  // namespace moorage::repo_cache
