// Groups reads so that they wait for the disk once. A call's result is durable when the call
// returns (store.h), so reading ten rows may wait ten times for commits of other threads. While an
// object of this class lives, the reads of its thread do not wait; its end, and each commit of the
// thread, waits for them all. Until then do nothing that a row lost in a power cut would have
// forbidden: send no answer, remove nothing.
#pragma once

#include "state_db/store.h"

namespace moorage::state_db {

class GroupedReads {
 public:
  explicit GroupedReads(Store& store);
  ~GroupedReads();
  GroupedReads(GroupedReads&&) = delete;

 private:
  Store& store_;
};

}  // namespace moorage::state_db
