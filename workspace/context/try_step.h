// Runs a step of the reconciler on its own: one broken thing must not keep the daemon from starting
// or other things from being repaired. A failure is logged and retried later.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "state_db/store.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

template <typename Step>
void try_step(const char* event, const std::string& subject, Step step) {
  try {
    step();
  } catch (const base::Error& error) {
    base::log(base::LogLevel::error, event, {{"subject", subject}, {"error", error.message()}});
  }
}

// Empty: `take` met a conflict, because a verb is using it.
template <typename Take>
std::optional<base::KeyedMutex::Guard> guard_if_free(Take take) {
  try {
    return take(std::chrono::milliseconds(0));
  } catch (const base::Error& error) {
    if (error.code() == base::Code::conflict) return std::nullopt;
    throw;
  }
}

inline auto lock_if_free(Context& context, const std::string& key) {
  return guard_if_free(
      [&](auto patience) { return context.locks.lock(key, "clean-up", patience); });
}

// For a thing that is only read: others may read it, too.
inline auto share_if_free(Context& context, const std::string& key, const std::string& operation) {
  return guard_if_free(
      [&](auto patience) { return context.locks.share(key, operation, patience); });
}

}  // namespace moorage::workspace
