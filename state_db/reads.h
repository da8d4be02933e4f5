// Two ways to read much at once. A call's result is durable when the call returns (store.h), so
// reading ten rows may wait ten times for commits of other threads.
#pragma once

#include <mutex>

#include "state_db/store.h"

namespace moorage::state_db {

// A reader of one consistent committed state: while it lives, all queries of its thread to this
// store use a separate connection and wait for no transaction. For large reads, above all `ls`. Its
// results are durable when it is destroyed. Starting a transaction or another reading in the same
// thread throws internal. Do not use it within a transaction, whose writes it would miss.
class ReadTransaction {
 public:
  explicit ReadTransaction(Store& store);
  ~ReadTransaction();
  ReadTransaction(ReadTransaction&&) = delete;

 private:
  Store& store_;
  std::unique_lock<std::recursive_mutex> lock_;
};

// Groups reads so that they wait for the disk once. While an object of this class lives, the reads
// of its thread do not wait; its end, and each commit of the thread, waits for them all. Until then
// do nothing that a row lost in a power cut would have forbidden: send no answer, remove nothing.
class GroupedReads {
 public:
  explicit GroupedReads(Store& store);
  ~GroupedReads();
  GroupedReads(GroupedReads&&) = delete;

 private:
  Store& store_;
};

}  // namespace moorage::state_db
