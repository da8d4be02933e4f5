// Time. Wall time is for people and records; boot time (CLOCK_BOOTTIME, with the boot id) is for
// every deadline and age that decides something, so that a jump of the wall clock decides nothing.
#pragma once

#include <cstdint>
#include <string>

namespace moorage::base {

const std::string& boot_id();  // /proc/sys/kernel/random/boot_id

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t wall_ms() const = 0;  // since 1970-01-01 UTC
  virtual int64_t boot_ms() const = 0;  // since boot, suspend included
  // Which boot that is: times of two boots have nothing to do with each other.
  virtual std::string boot_id() const { return base::boot_id(); }
};

const Clock& system_clock();
std::string format_utc(int64_t wall_ms);  // 2026-11-21T09:12:04.512Z

}  // namespace moorage::base
