// Time. Wall time is for people and records. Boot time (CLOCK_BOOTTIME, with the boot id) is for
// every deadline and age that decides something, so a jump of the wall clock cannot matter.
#pragma once

#include <cstdint>
#include <string>

namespace moorage::base {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t wall_ms() const = 0;  // since 1970-01-01 UTC
  virtual int64_t boot_ms() const = 0;  // since boot, including suspend
  // Identifies the boot: times of two boots cannot be compared.
  virtual std::string boot_id() const;
};

const Clock& system_clock();
std::string format_utc(int64_t wall_ms);  // 2026-11-21T09:12:04.512Z

}  // namespace moorage::base
