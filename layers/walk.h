// Reads a chain of overlay upper directories as the kernel would merge them, over a base of which
// only the names are known (the tree of a commit). overlay_lookup.h explains whiteouts, opaque
// directories and redirects. The directories are untrusted and may be changing: they are opened
// below a pinned descriptor, never through a link or onto another mount; their files are not opened
// here. If something vanishes during the walk, changed_meanwhile() reports it; the caller walks
// again. Paths are raw bytes, relative, without leading or trailing slashes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/look_memory.h"
#include "base/os/fd.h"
#include "layers/overlay_lookup.h"

namespace moorage::layers {

struct UpperDirectory {
  size_t layer = 0;  // 0 is the newest
  std::string path;  // in that layer; after a rename it differs from the path in the workspace
};

// One directory of the workspace, with the sources of its entries.
struct MergedDirectory {
  std::string path;
  std::vector<UpperDirectory> uppers;  // newest first; may be empty below a renamed directory
  std::optional<std::string> base;     // directory of the base that shows through; "" is its root
};

struct MergedEntry {
  EntryKind kind = EntryKind::absent;
  UpperDirectory source;      // location of a file or link
  bool executable = false;    // by its owner, which is what git stores
  MergedDirectory directory;  // of a directory
};

class LayerWalk {
 public:
  using IsBaseDirectory = std::function<bool(const std::string& path)>;

  // `uppers` newest first.
  LayerWalk(const std::vector<std::string>& uppers, IsBaseDirectory is_base_directory)
      : layers_(open_uppers(uppers)), is_base_directory_(std::move(is_base_directory)) {}

  // Charges the names it reads to `memory` until their Open is destroyed. Null: not charged.
  void charge(base::LookMemory* memory) { memory_ = memory; }

  MergedDirectory root() const;

  // A directory opened for lookups. The names are those in any upper, sorted; other names come only
  // from the base.
  class Open {
   public:
    const std::vector<std::string>& names() const { return names_; }
    std::optional<MergedEntry> entry(const std::string& name);  // nullopt: gone since the listing
    ~Open();
    Open(Open&&) = delete;

   private:
    friend class LayerWalk;
    struct Level {
      size_t layer;
      std::string path;
      Fd fd;
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

  // Opens a directory found before. Empty if it is no longer one.
  Fd open_directory(const UpperDirectory& source);
  // Opens a regular file found before. Empty if it is no longer one.
  Fd open_file(const UpperDirectory& source);
  std::optional<std::string> read_link(const UpperDirectory& source);

  bool changed_meanwhile() const { return changed_meanwhile_; }
  // More than 1,000,000 names, more than 32 MiB of names in one directory, a path over 4,095 bytes,
  // or out of memory.
  bool truncated() const { return truncated_; }
  // Whether either happened since the last call: to attribute it to one directory.
  bool take_incomplete();

 private:
  Fd open_below(size_t layer, const std::string& path, int flags);
  void read_names(const Fd& directory, Open& open);

  std::vector<Fd> layers_;
  IsBaseDirectory is_base_directory_;
  base::LookMemory* memory_ = nullptr;
  uint64_t names_seen_ = 0;
  bool changed_meanwhile_ = false;
  bool truncated_ = false;
};

}  // namespace moorage::layers
