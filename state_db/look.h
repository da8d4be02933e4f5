// Reads that wait for the disk once, not one by one. What a call has read is durable when the call
// returns (store.h): who reads ten rows waits up to ten times for what others commit meanwhile.
// While one of these lives, the reads of its thread wait for nothing; at its end, and at each
// commit of the thread, all that was read until then is durable. Do nothing before that which a row
// that is gone after a power cut would have forbidden: answer nobody, remove nothing.
#pragma once

#include "state_db/store.h"

namespace moorage::state_db {

class Look {
 public:
  explicit Look(Store& store);
  ~Look();
  Look(const Look&) = delete;
  Look& operator=(const Look&) = delete;

 private:
  Store& store_;
};

}  // namespace moorage::state_db
