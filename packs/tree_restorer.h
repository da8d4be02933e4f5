// Restores a tree from its packs (delta_pack.h), below directories that nobody else can reach.
// The packs are verified, but their contents stay untrusted: a path has no "..", no empty part and
// no link in it, owners and attributes are those allowed for the tree, and devices are whiteouts.
// Anything else is refused as corrupted. Directories get their times after all packs, because
// adding entries changes them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/fd.h"
#include "packs/delta_pack.h"

namespace moorage::packs {

struct TreePlaces {
  std::map<std::string, std::string> roots;  // by prefix; "" must be the only one
  // Owner ids on disk: `ids` of them, from first_id. 0 ids: only root, and no setuid bits.
  uint32_t first_id = 0;
  uint32_t ids = 0;
  std::function<bool(std::string_view path)> allowed = {};  // empty: all
};

class TreeRestorer : public PackVisitor {
 public:
  explicit TreeRestorer(const TreePlaces& places);

  void entry(const Node& entry) override;
  void growth(const std::string& path) override;
  void piece(uint64_t offset, std::string_view bytes) override;
  void end_pieces() override;
  void removal(const std::string& path) override;
  void finish();
  uint64_t entries() const { return entries_; }

 private:
  struct Level {
    std::string name;
    Fd fd;
  };
  struct Place {
    int directory;
    std::string name;  // empty: a root itself
  };
  Place find(const std::string& path);  // opens the directories above
  void remove(const Place& place, const std::string& path);
  void make_link(const Node& entry);
  void make_directory(const Place& place, const Node& entry);
  void check(const Node& entry) const;
  [[noreturn]] static void refuse(const std::string& path, const std::string& why);

  const TreePlaces& places_;
  std::map<std::string, Fd> roots_;
  std::string root_;           // of the levels
  std::vector<Level> levels_;  // nested open directories
  Fd file_;
  Node file_entry_;
  bool grows_ = false;
  std::map<std::string, timespec> directory_times_;
  uint64_t entries_ = 0;
};

}  // namespace moorage::packs
