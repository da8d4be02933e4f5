#include "workspace/live_copy.h"

#include <chrono>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "workspace/mapped_files.h"

namespace moorage::workspace {
namespace {

using Clock = std::chrono::steady_clock;

MOORAGE_CRASH_POINT(frozen, "snapshot.frozen");
MOORAGE_CRASH_POINT(copied, "snapshot.copied");

// A pass that takes so long leaves as much to the next one; below it the last one may follow.
constexpr std::chrono::milliseconds kShortPass{20};
// Of a load that writes faster than it is copied: more passes bring nothing.
constexpr int kMostPasses = 5;

int64_t microseconds_since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count();
}

class Frozen {
 public:
  explicit Frozen(const Running& running) : running_(running), since_(Clock::now()) {
    running_.backend->freeze(running_.name);
  }
  ~Frozen() {
    try {
      thaw();
    } catch (const base::Error& error) {
      base::log(base::LogLevel::error, "sandbox.not_thawed",
                {{"sb", running_.sandbox}, {"error", error.message()}});
    }
  }
  Frozen(const Frozen&) = delete;
  Frozen& operator=(const Frozen&) = delete;
  uint64_t thaw() {
    if (thawed_) return 0;
    running_.backend->thaw(running_.name);
    thawed_ = true;
    return static_cast<uint64_t>(microseconds_since(since_));
  }

 private:
  const Running& running_;
  const Clock::time_point since_;
  bool thawed_ = false;
};

}  // namespace

uint64_t copy_live_layer(const LayerCopy::Places& places, const Running& running) {
  LayerCopy copy(places);
  for (int pass = 0; pass < kMostPasses; ++pass) {
    const auto begin = Clock::now();
    copy.pass();
    if (Clock::now() - begin < kShortPass) break;
  }
  uint64_t pause_us = 0;
  {
    Frozen stopped(running);
    frozen.pass();
    copy.finish(mapped_inodes(running.backend->members(running.name), places.live));
    pause_us = stopped.thaw();
  }
  copied.pass();
  copy.keep_record();
  return pause_us;
}

}  // namespace moorage::workspace
