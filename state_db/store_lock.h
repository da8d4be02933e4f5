// The right to own a store: flock on DIRECTORY/state.db.lock, which holds the owner's pid as text.
// The kernel releases the lock when the process ends, however it ends. The file stays.
#pragma once

#include <cstdint>
#include <string>

#include "base/os/fd.h"

namespace moorage::state_db {

// Held until the descriptor is closed. Throws conflict, with the holder's pid, after a second: a
// holder that was just killed may still be exiting.
Fd lock_store(const std::string& directory);

// The right to own sandboxes of a store with this id on this host. A copy of the store has the same
// id: its daemon would take the sandboxes of the other one for its own leftovers, and end them.
// Conflict, with the other's process and directory. No lock, with a warning, where /run is
// read-only.
Fd lock_store_id(const std::string& id, const std::string& directory);

// DIRECTORY/reserve: blocks kept back so that the database can still write on a full disk. False:
// no room.
bool make_reserve(const std::string& directory, uint64_t bytes);
bool reserve_is_there(const std::string& directory, uint64_t bytes);
bool release_reserve(const std::string& directory);

}  // namespace moorage::state_db
