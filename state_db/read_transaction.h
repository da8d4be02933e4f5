// A reader of one consistent committed state: while it lives, all queries of its thread to this
// store use a separate connection and wait for no transaction. For large reads, above all `ls`. Its
// results are durable when it is destroyed. Starting a transaction or another reading in the same
// thread throws internal. Do not use it within a transaction, whose writes it would miss.
#pragma once

#include <mutex>

#include "state_db/store.h"

namespace moorage::state_db {

class ReadTransaction {
 public:
  explicit ReadTransaction(Store& store);
  ~ReadTransaction();
  ReadTransaction(ReadTransaction&&) = delete;

 private:
  Store& store_;
  std::unique_lock<std::recursive_mutex> lock_;
};

}  // namespace moorage::state_db
