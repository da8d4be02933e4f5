#include "workspace/context/freeze_guard.h"

#include "base/error.h"
#include "base/log.h"

namespace moorage::workspace {

using Clock = std::chrono::steady_clock;

FreezeGuard::FreezeGuard(const LiveSandbox& running) : running_(running), since_(Clock::now()) {
  running_.backend->freeze(running_.name);
}

FreezeGuard::~FreezeGuard() {
  try {
    if (!thawed_) thaw();
  } catch (const base::Error& error) {
    base::log(base::LogLevel::error, "sandbox.not_thawed",
              {{"sb", running_.sandbox}, {"error", error.message()}});
  }
}

uint64_t FreezeGuard::thaw() {
  running_.backend->thaw(running_.name);
  thawed_ = true;
  const auto paused = Clock::now() - since_;
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(paused).count());
}

}  // namespace moorage::workspace
