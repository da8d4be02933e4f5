// Where a store's database is, and how to open it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"

namespace moorage::state_db {

struct StoreOptions {
  std::string directory;        // must exist; holds state.db, state.db.lock and reserve
  uint64_t reserve_bytes = 0;   // size of DIRECTORY/reserve; 0: none
  int busy_timeout_ms = 5'000;  // wait for other readers of state.db (sqlite3 shell, backup)
  const base::Clock* clock = &base::system_clock();
  // Called with the id of an existing store before any change in it: may throw.
  std::function<void(const std::string& store_id)> before_changes = {};
  bool may_make = true;  // false: a file without tables is damage, not a new store
};

}  // namespace moorage::state_db
