// What the follower has recorded of a tree, and its form in the lists of packs
// (packs/delta_pack.h). It is kept on disk (state_db/tables/seen_tree.h), and a list is read and
// written line by line, so no tree is too large for it.
//
// A line is "path NUL inode time size dl LF", or "path NUL - LF" for a path removed with everything
// below it. A later line replaces an earlier one; one for a path that is not a directory removes
// everything below it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "state_db/tables/seen_tree.h"

namespace moorage::workspace {

// A file sent this soon after its change may have changed again.
inline constexpr int64_t kSettledNs = 2'000'000'000;

class TreeRecord {
 public:
  explicit TreeRecord(state_db::SeenDatabase& database) : seen_(database) {}

  state_db::SeenTree& seen() { return seen_; }
  // Writes the lines of this round's changes and ends the round.
  void end_round(const std::function<void(std::string_view line)>& sink);
  // Takes a list in parts; corrupted: not a list.
  void read(std::string_view part);
  void end_of_list();

 private:
  void take(std::string_view path, std::string_view facts);
  state_db::SeenTree seen_;
  std::string unread_;
};

}  // namespace moorage::workspace
