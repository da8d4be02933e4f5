// The age of a store: how long the host has been up while it had this store. Retention uses this
// age, never the wall clock: it counts only CLOCK_BOOTTIME, so setting the clock has no effect.
// Across a reboot only the wall clock is known, so time powered off, and from boot to the first
// open, does not count: retention then errs on the long side.
#pragma once

#include <cstdint>

namespace moorage::state_db {

class Store;

class StoreAge {
 public:
  explicit StoreAge(Store& store) : store_(store) {}
  int64_t now_ms();
  // Saves the age if the last save is minutes old or from another boot; a reboot loses the time
  // since the last save. Called at each open; call it about once a minute.
  void save();

 private:
  struct Saved {
    int64_t age_ms = 0;
    bool this_boot = false;
    int64_t since_ms = 0;  // boot time from then to now
  };
  Saved read();

  Store& store_;
};

}  // namespace moorage::state_db
