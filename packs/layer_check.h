// Every rule about the entries of one part of a layer, and their order, that can be checked without
// a file system. A directory comes directly before its contents; a hard link names an entry of the
// same part. LayerRestorer calls this before it makes anything; its file system checks the rest (a
// duplicate name, a link to a missing path). Where nothing is made, LayerDryRun checks everything,
// so whatever it accepts can be made.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "packs/layer_names.h"
#include "packs/tar_reader.h"

namespace moorage::packs {

class LayerCheck {
 public:
  LayerCheck(std::string prefix, uint32_t disk_first_id)  // "layers/0/tree"
      : prefix_(std::move(prefix)), disk_first_id_(disk_first_id) {}
  // How many directories, from the root, remain open around this entry. 0: it is the root.
  // Throws invalid_argument.
  size_t place(const ArchiveEntry& entry);
  // Checks the pieces of one file, in order.
  class Content {
   public:
    explicit Content(const ArchiveEntry& entry) : entry_(entry) {}
    void add(const ArchiveReader::Piece& piece);
    uint64_t end() const { return end_; }  // of the last piece

   private:
    const ArchiveEntry& entry_;
    uint64_t end_ = 0;
  };

 private:
  const std::string prefix_;
  const uint32_t disk_first_id_;
  std::vector<std::string> open_;  // paths of open directories
};

class LayerDryRun {
 public:
  // `unnamed_file` stores the names of a part with many of them (layer_names.h).
  LayerDryRun(const std::string& prefix, uint32_t disk_first_id, std::function<Fd()> unnamed_file)
      : prefix_(prefix), check_(prefix, disk_first_id), names_(std::move(unnamed_file)) {}
  void take(const ArchiveEntry& entry, ArchiveReader& reader);
  void finish();  // after the last entry

 private:
  const std::string prefix_;
  LayerCheck check_;
  LayerNames names_;
};

[[noreturn]] void refuse_entry(const ArchiveEntry& entry, const std::string& why);

}  // namespace moorage::packs
