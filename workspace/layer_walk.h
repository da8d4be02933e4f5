// Reads a chain of overlay upper directories as the kernel would merge them, over a base that is
// known by name only (the tree of a commit). What whiteouts, opaque directories and redirects mean
// is in overlay_lookup.h. The directories are a stranger's and may be changing:
// they are opened below a pinned descriptor, never through a link or onto another mount; no file in
// them is opened here. What vanishes under the walk is reported by changed_meanwhile(); the caller
// walks again. Paths are raw bytes, relative, without slashes at the ends.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/look_memory.h"

namespace moorage::workspace {

struct UpperDirectory {
  size_t layer = 0;  // 0 is the newest
  std::string path;  // in that layer: another than in the workspace after a rename
};

// One directory of the workspace, and where its entries come from.
struct MergedDirectory {
  std::string path;
  std::vector<UpperDirectory> uppers;  // newest first; may be empty below a renamed directory
  std::optional<std::string> base;     // directory of the base that shows through; "" is its root
};

enum class EntryKind { absent /* whited out */, file, symlink, directory, other };

struct MergedEntry {
  EntryKind kind = EntryKind::absent;
  UpperDirectory source;      // of a file or link: where it is
  bool executable = false;    // by its owner, as git asks
  MergedDirectory directory;  // of a directory
};

class LayerWalk {
 public:
  using IsBaseDirectory = std::function<bool(const std::string& path)>;

  // `uppers` newest first.
  LayerWalk(const std::vector<std::string>& uppers, IsBaseDirectory is_base_directory);

  // Names that are read are charged to it, and given back with their Open. Null: not charged.
  void charge(base::LookMemory* memory) { memory_ = memory; }

  MergedDirectory root() const;

  // A directory opened for questions. Names are those that some upper has, sorted; the base's
  // others are untouched.
  class Open {
   public:
    const std::vector<std::string>& names() const { return names_; }
    std::optional<MergedEntry> entry(const std::string& name);  // empty: gone since it was listed
    ~Open();
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    friend class LayerWalk;
    struct Level {
      size_t layer;
      std::string path;
      base::Fd fd;
      bool marked_whiteouts;
    };
    Open(LayerWalk& walk, const MergedDirectory& directory);

    LayerWalk& walk_;
    const MergedDirectory& directory_;
    std::vector<Level> levels_;
    std::vector<std::string> names_;
    uint64_t charged_bytes_ = 0;
  };
  Open open(const MergedDirectory& directory) { return Open(*this, directory); }

  // A directory found before. Empty if it is no longer one.
  base::Fd open_directory(const UpperDirectory& source);
  // A regular file found before. Empty if it is no longer one.
  base::Fd open_file(const UpperDirectory& source);
  std::optional<std::string> read_link(const UpperDirectory& source);

  bool changed_meanwhile() const { return changed_meanwhile_; }
  // More than 1,000,000 names, more than 32 MiB of them in one directory, a path over 4,095 bytes,
  // or no memory left for more.
  bool truncated() const { return truncated_; }
  // Whether either was so since this was asked last: for one who tells directories apart.
  bool take_incomplete();

 private:
  base::Fd open_below(size_t layer, const std::string& path, int flags);
  void read_names(const base::Fd& directory, Open& open);

  std::vector<base::Fd> layers_;
  IsBaseDirectory is_base_directory_;
  base::LookMemory* memory_ = nullptr;
  uint64_t names_seen_ = 0;
  bool changed_meanwhile_ = false;
  bool truncated_ = false;
};

}  // namespace moorage::workspace
