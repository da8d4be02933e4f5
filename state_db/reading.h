// A reader of what is committed, all of one moment: while it lives, whatever its thread asks the
// tables of this store goes to a connection of its own, and waits for nobody who commits. For who
// reads much, `ls` above all. A transaction, or another reading, of the thread then throws
// internal. Within a transaction it would not see what that has written.
#pragma once

#include <mutex>

#include "state_db/store.h"

namespace moorage::state_db {

class Reading {
 public:
  explicit Reading(Store& store);
  ~Reading();
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  Store& store_;
  std::unique_lock<std::recursive_mutex> lock_;
};

}  // namespace moorage::state_db
