// Copies of a database that is damaged, kept as it was found: STORE/state.db.damaged-<time>/ with
// state.db, its log and its index of the log. Nothing of ours ever removes one.
#pragma once

#include <cstdint>
#include <string>

namespace moorage::state_db {

inline constexpr int kMaxQuarantined = 5;

struct Quarantined {
  std::string directory;  // of the copy; empty: there is none
  std::string why_not;    // empty: there is nothing to copy
};

// Durable when it returns. One that is there already with the same bytes is not made again, so
// restarts do not fill the disk. Made only where the disk has room for it and some to spare.
Quarantined quarantine(const std::string& store, int64_t wall_ms);

}  // namespace moorage::state_db
