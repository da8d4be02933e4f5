// What was seen of a tree that a copy elsewhere follows, and how it is told in the lists of its
// packs (replica_pack.h). It is kept on the disk (state_db/seen_tree.h), and a list is read and
// written a line at a time, so no tree is too large for it.
//
// A line is "path NUL inode time size dl LF", or "path NUL - LF" for one that went, with all below
// it. A later line takes the place of an earlier one; one of a path that is not a directory takes
// away what was below it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "state_db/seen_tree.h"

namespace moorage::workspace {

// A file that was sent so soon after its change may have changed again since.
inline constexpr int64_t kSettledNs = 2'000'000'000;

class TreeRecord {
 public:
  explicit TreeRecord(state_db::SeenDatabase& database) : seen_(database) {}

  state_db::SeenTree& seen() { return seen_; }
  // The lines of what came, changed or went in this round, which ends.
  void end_round(const std::function<void(std::string_view line)>& sink);
  // Parts of a list as they come; corrupted: it is none.
  void read(std::string_view part);
  void end_of_list();

 private:
  void take(std::string_view path, std::string_view facts);
  state_db::SeenTree seen_;
  std::string unread_;
};

}  // namespace moorage::workspace
