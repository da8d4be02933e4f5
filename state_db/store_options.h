// Where a store's database is, and how it is opened.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"

namespace moorage::state_db {

struct StoreOptions {
  std::string directory;        // must exist; state.db, state.db.lock and reserve are made in it
  uint64_t reserve_bytes = 0;   // size of DIRECTORY/reserve; 0: none
  int busy_timeout_ms = 5'000;  // somebody else reading state.db (sqlite3 shell, backup)
  const base::Clock* clock = &base::system_clock();
  // Called with the id of a store that is not new, before anything in it is changed: may throw.
  std::function<void(const std::string& store_id)> before_changes = {};
  bool may_make = true;  // false: a file without tables is damage, not a new store
};

}  // namespace moorage::state_db
