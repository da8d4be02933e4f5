// The list beside the seal of a layer: a short hash of each path's part of the seal, so that a seal
// that does not match can name the differences. An agent decides how many paths exist, so the list
// is never held in memory: it is written during one walk and read along the next. Both visit paths
// in the same order: the sealed parts in turn, names byte by byte, a directory before its contents.
// On the disk: path, NUL, 16 hex digits, newline. A path may hold a newline, never a NUL.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/atomic_file.h"
#include "base/os/fd.h"

namespace moorage::layers {

inline constexpr std::array<std::string_view, 3> kSealedParts{"tree", "home", "system"};
inline constexpr size_t kSealListMarkBytes = 18;        // of an entry, without its path
inline constexpr size_t kMaxSealListEntryBytes = 4096;  // longer ones are left out

class SealListWriter {
 public:
  explicit SealListWriter(const std::string& path) : file_(path) {}
  void add(std::string_view path, std::string_view hash);
  void commit();  // replaces the existing list; not synced

 private:
  base::AtomicFile file_;
  std::string pending_;
};

struct Differences {
  uint64_t count = 0;
  std::vector<std::string> first;  // for display, as paths inside: /workspace/src/a.txt
};

// Compares a list on disk with a walk. Invalid data ends the list: all later paths differ.
class SealListComparison {
 public:
  explicit SealListComparison(const std::string& path, size_t shown = 3);
  bool has_list() const { return file_.has_value(); }
  void add(std::string_view path, std::string_view hash);
  Differences finish();

 private:
  void read_next();
  void differs(std::string_view path);

  const size_t shown_;
  std::optional<Fd> file_;
  uint64_t file_at_ = 0;  // read so far
  std::string piece_;
  size_t piece_at_ = 0;
  bool has_entry_ = false;  // the next entry is in piece_
  std::string_view path_;
  std::string_view hash_;
  Differences found_;
};

}  // namespace moorage::layers
