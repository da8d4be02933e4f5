// What may follow what in one part of a layer, and what an entry of it may be: every rule that can
// be checked without a file system. A directory stands directly in front of what is in it; a hard
// link names an entry of the same part. LayerRestorer asks it before it makes anything, and for the
// rest (a name that is there twice, a link to what is not there) its file system answers. Where
// nothing is made LayerDryRun has all of them, so that what it lets through can be made.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "workspace/archive_reader.h"
#include "workspace/layer_names.h"

namespace moorage::workspace {

class LayerCheck {
 public:
  LayerCheck(std::string prefix, uint32_t disk_first_id);  // "layers/0/tree"
  // How many directories, from the root on, remain open around this entry. 0: it is the root.
  // Throws invalid_argument.
  size_t place(const ArchiveEntry& entry);
  // The pieces of one file, in their order.
  class Content {
   public:
    explicit Content(const ArchiveEntry& entry) : entry_(entry) {}
    void add(const ArchiveReader::Piece& piece);
    uint64_t end() const { return end_; }  // of what was added

   private:
    const ArchiveEntry& entry_;
    uint64_t end_ = 0;
  };

 private:
  const std::string prefix_;
  const uint32_t disk_first_id_;
  std::vector<std::string> open_;  // paths of directories
};

class LayerDryRun {
 public:
  // `unnamed_file` for the names of a part with many (layer_names.h).
  LayerDryRun(const std::string& prefix, uint32_t disk_first_id,
              std::function<base::Fd()> unnamed_file);
  void take(const ArchiveEntry& entry, ArchiveReader& reader);
  void finish();  // after the last one

 private:
  const std::string prefix_;
  LayerCheck check_;
  LayerNames names_;
};

[[noreturn]] void refuse_entry(const ArchiveEntry& entry, const std::string& why);

}  // namespace moorage::workspace
