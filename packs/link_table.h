// The first path of each file with several names, while an archive is written. It uses unnamed
// files, so a tree with a million of them takes no memory for this.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/os/fd.h"

namespace moorage::packs {

class LinkTable {
 public:
  using Inode = std::pair<dev_t, ino_t>;

  // `make_file` makes an empty unnamed file; called only once there is a path to store.
  explicit LinkTable(std::function<Fd()> make_file) : make_file_(std::move(make_file)) {}

  // The first path given for this file; nullopt: this one is the first, and is stored.
  std::optional<std::string> first_path(const Inode& inode, const std::string& path);

 private:
  struct Slot {
    uint64_t device = 0;
    uint64_t inode = 0;
    uint64_t place = 0;  // of the path in paths_, plus one; 0: the slot is free
  };

  void grow();
  Slot read_slot(uint64_t number) const;
  void write_slot(uint64_t number, const Slot& slot);
  uint64_t find(const Inode& inode) const;  // its slot, or the free slot for it
  std::string path_at(uint64_t place) const;
  uint64_t keep(const std::string& path);

  const std::function<Fd()> make_file_;
  Fd slots_;
  Fd paths_;
  uint64_t slot_count_ = 0;  // a power of two
  uint64_t used_ = 0;
  uint64_t paths_bytes_ = 0;
};

}  // namespace moorage::packs
