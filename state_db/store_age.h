// The age of a store: for how long the host was up since the store was made, as far as the store
// saw it. What is kept for a time is kept by this age, never by the wall clock: only CLOCK_BOOTTIME
// counts, so setting the clock moves nothing. Across a reboot nothing is known but the wall clock,
// so the time that the machine was off, and from its boot to the first open, does not count: what
// is kept is kept longer then, never shorter.
#pragma once

#include <cstdint>

namespace moorage::state_db {

class Store;

class StoreAge {
 public:
  explicit StoreAge(Store& store) : store_(store) {}
  int64_t now_ms();
  // Writes the age down where the last time is some minutes ago, or was in another boot; a reboot
  // takes what came since. Done at each open; call it about once a minute.
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
