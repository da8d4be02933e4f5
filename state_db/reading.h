// A reader of what is committed, all of one moment: while it lives, whatever its thread asks the
// tables of this store goes to a connection of its own, and waits for nobody's transaction. For who
// reads much, `ls` above all. What it read is durable when it is gone. A transaction, or another
// reading, of the thread meanwhile throws internal. Within a transaction it would not see what that
// has written.
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
