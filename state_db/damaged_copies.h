// Unmodified copies of a damaged database: STORE/state.db.damaged-<time>/ with state.db, its log
// and the index of the log. The daemon never removes one.
#pragma once

#include <cstdint>
#include <string>

namespace moorage::state_db {

inline constexpr int kMaxQuarantined = 5;

struct Quarantined {
  std::string directory;  // of the copy; empty: none
  std::string why_not;    // empty: nothing to copy
};

// Durable on return. An existing copy with the same bytes is reused, so restarts do not fill the
// disk. Makes a copy only if the disk keeps some free space.
Quarantined quarantine(const std::string& store, int64_t wall_ms);

}  // namespace moorage::state_db
