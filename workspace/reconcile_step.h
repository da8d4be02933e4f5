// How a step of the reconciler runs: on its own, so that one broken thing keeps neither the daemon
// from starting nor the other things from being mended; it is said, and tried again later.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "state_db/store.h"
#include "workspace/context.h"

namespace moorage::workspace {

template <typename Step>
void attempt(const char* event, const std::string& subject, Step step) {
  try {
    step();
  } catch (const base::Error& error) {
    base::log(base::LogLevel::error, event, {{"subject", subject}, {"error", error.message()}});
  }
}

// Nothing: a verb is at work on it.
inline std::optional<base::KeyedMutex::Guard> lock_if_free(Context& context,
                                                           const std::string& key) {
  try {
    return context.locks.lock(key, "clean-up", std::chrono::milliseconds(0));
  } catch (const base::Error& error) {
    if (error.code() == base::Code::conflict) return std::nullopt;
    throw;
  }
}

// Of what is only read: others may read it, too.
inline std::optional<base::KeyedMutex::Guard> share_if_free(Context& context,
                                                            const std::string& key,
                                                            const std::string& operation) {
  try {
    return context.locks.share(key, operation, std::chrono::milliseconds(0));
  } catch (const base::Error& error) {
    if (error.code() == base::Code::conflict) return std::nullopt;
    throw;
  }
}

}  // namespace moorage::workspace
