// Opens a store's database, or tells that it cannot be read although there may be work beside it.
// What is told here is what rescue mode (daemon/rescue.h) lives on; what a person can mend at once
// (another owner, rights, a disk that fails) is thrown as Store throws it. state.db and its log are
// then as they were found: SQLite takes an empty file for a new database and what is no log for
// none, so both are looked at before it is asked.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "state_db/store.h"

namespace moorage::state_db {

enum class Trouble : uint8_t {
  damaged,  // it is there, and it is no sound database
  missing,  // it is gone or empty, and the store has layers or journals
  unknown,  // a newer version's or another program's
};

struct Unreadable {
  Trouble trouble = Trouble::damaged;
  std::string what;     // one sentence
  std::string hint;     // what to do
  std::string copy;     // directory of the quarantined copy; empty: none was made
  std::string no_copy;  // why not; empty where there was nothing to copy, or no need
  base::Fd lock;        // the store is ours nevertheless
};

struct Opened {
  std::unique_ptr<Store> store;
  std::optional<Unreadable> unreadable;  // else
};

Opened open_store(const StoreOptions& options);

// What SQLite finds wrong in DIRECTORY/state.db, table by table, as sentences. Reads the whole
// file, and leaves it and its log as they are.
std::vector<std::string> tell_damage(const std::string& directory);

}  // namespace moorage::state_db
