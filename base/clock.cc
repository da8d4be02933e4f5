#include "base/clock.h"

#include <time.h>

#include <chrono>
#include <cstdio>

#include "base/os/process.h"

namespace moorage::base {
namespace {

int64_t read_clock_ms(clockid_t id) {
  timespec now{};
  clock_gettime(id, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

class SystemClock final : public Clock {
 public:
  int64_t wall_ms() const override { return read_clock_ms(CLOCK_REALTIME); }
  int64_t boot_ms() const override { return read_clock_ms(CLOCK_BOOTTIME); }
};

}  // namespace

const Clock& system_clock() {
  static const auto& clock = *new SystemClock;  // never destroyed: the log uses it to the end
  return clock;
}

std::string Clock::boot_id() const { return base::boot_id(); }

// Not gmtime(3): it would read /etc/localtime, which for the warden belongs to the sandbox.
std::string format_utc(int64_t wall_ms) {
  using namespace std::chrono;
  auto days = floor<std::chrono::days>(milliseconds(wall_ms));
  year_month_day date{sys_days(days)};
  hh_mm_ss time{milliseconds(wall_ms) - days};
  char text[64];
  snprintf(text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ", static_cast<int>(date.year()),
           static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
           static_cast<int>(time.hours().count()), static_cast<int>(time.minutes().count()),
           static_cast<int>(time.seconds().count()), static_cast<int>(time.subseconds().count()));
  return text;
}

}  // namespace moorage::base
