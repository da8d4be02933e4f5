// Makes one part of a layer (the upper directory of its tree, home or system) from an archive's
// entries, which are untrusted. A directory must come directly before its contents: so every entry
// is made by its name alone, in a directory that was made here and is held open, and no path or
// link of the archive is ever followed. A hard link names an earlier entry of the same part, opened
// beneath the root without links. Owners are shifted into the on-disk range that no
// host user has. Nothing is synced.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/os/fd.h"
#include "packs/layer_check.h"
#include "packs/tar_reader.h"

namespace moorage::packs {

class LayerRestorer {
 public:
  // `upper` is an empty directory; `prefix` is "layers/0/tree".
  LayerRestorer(const std::string& upper, std::string prefix, uint32_t disk_first_id);
  // The reader is positioned at this entry.
  void take(const ArchiveEntry& entry, ArchiveReader& reader);
  void finish();  // after the last entry: sets the directories' times

 private:
  struct Level {
    Fd fd;
    ArchiveEntry entry;  // applied when everything below is made
  };
  void leave();
  void make_directory(const ArchiveEntry& entry, int parent, const std::string& name);
  void make_file(const ArchiveEntry& entry, int parent, const std::string& name,
                 ArchiveReader& reader);
  void make_other(const ArchiveEntry& entry, int parent, const std::string& name);
  void make_link(const ArchiveEntry& entry, int parent, const std::string& name);
  Fd find_made(const std::string& path, const ArchiveEntry& entry);
  void complete(const ArchiveEntry& entry, int fd) const;

  const std::string prefix_;
  const uint32_t disk_first_id_;
  Fd root_;
  LayerCheck check_;
  std::vector<Level> levels_;
};

}  // namespace moorage::packs
