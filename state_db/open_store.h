// Opens a store's database, or describes why it is unreadable although the store may contain work:
// input for rescue mode (daemon/rescue.h). Problems that a person can fix at once (owner,
// permissions, a failing disk) are thrown as by Store. state.db and its log stay unmodified: SQLite
// would treat an empty file as a new database and ignore an invalid log, so this code checks both
// first.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/os/fd.h"
#include "state_db/store.h"

namespace moorage::state_db {

enum class Trouble : uint8_t {
  damaged,  // exists, but is not a valid database
  missing,  // absent or empty, although the store has layers or journals
  unknown,  // from a newer version or another program
};

struct Unreadable {
  Trouble trouble = Trouble::damaged;
  std::string what{};     // one sentence
  std::string hint{};     // advice
  std::string copy{};     // directory of the quarantined copy; empty: none
  std::string no_copy{};  // why; empty: nothing to copy, or no need
  Fd lock{};              // the store's lock, held anyway
};

struct Opened {
  std::unique_ptr<Store> store;
  std::optional<Unreadable> unreadable;  // otherwise
};

Opened open_store(const StoreOptions& options);

// The problems that SQLite finds in DIRECTORY/state.db, table by table, as sentences. Reads the
// whole file; modifies neither it nor its log.
std::vector<std::string> describe_damage(const std::string& directory);

}  // namespace moorage::state_db
