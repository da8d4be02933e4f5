#include "workspace/snapshot/live_copy.h"

#include <chrono>

#include "base/crash_point.h"
#include "base/os/files.h"
#include "layers/mapped_files.h"
#include "workspace/context/freeze_guard.h"

namespace moorage::workspace {
namespace {

using Clock = std::chrono::steady_clock;

MOORAGE_CRASH_POINT(frozen, "snapshot.frozen");
MOORAGE_CRASH_POINT(copied, "snapshot.copied");

// A longer pass leaves as much work to the next one; after a shorter one the last may follow.
constexpr std::chrono::milliseconds kShortPass{20};
// If the load writes faster than we copy, more passes do not help.
constexpr int kMostPasses = 5;

}  // namespace

uint64_t copy_live_layer(const layers::LayerCopy::Places& places, const LiveSandbox& running) {
  layers::LayerCopy copy(places, [&] {
    return layers::mapped_inodes(running.backend->members(running.name), places.live);
  });
  for (int pass = 0; pass < kMostPasses; ++pass) {
    const auto begin = Clock::now();
    copy.pass();
    if (Clock::now() - begin < kShortPass) break;
  }
  uint64_t pause_us = 0;
  {
    FreezeGuard stopped(running);
    frozen.pass();
    copy.finish();
    pause_us = stopped.thaw();
  }
  copied.pass();
  copy.keep_record();
  return pause_us;
}

uint64_t clone_live_layer(layers::Storage& storage, base::LayerId live, base::LayerId copy,
                          const LiveSandbox& running) {
  base::sync_file_system(storage.layer_path(live));
  uint64_t pause_us = 0;
  {
    FreezeGuard stopped(running);
    frozen.pass();
    storage.clone_layer(live, copy);
    pause_us = stopped.thaw();
  }
  copied.pass();
  return pause_us;
}

}  // namespace moorage::workspace
