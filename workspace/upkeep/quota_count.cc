#include "workspace/upkeep/quota_count.h"

#include <chrono>

#include "base/error.h"
#include "base/log.h"

namespace moorage::workspace {
namespace {

constexpr base::UsageLimits kWalk{.time = std::chrono::milliseconds(10'000)};
constexpr base::UsageLimits kShortWalk{.time = std::chrono::milliseconds(50)};

std::optional<base::Usage> walk(const std::string& path, const base::UsageLimits& limits) {
  try {
    return base::tree_usage(path, limits);
  } catch (const base::Error& error) {
    base::log(base::LogLevel::debug, "workspace.not_measured",
              {{"path", path}, {"error", error.message()}});
    if (error.code() != base::Code::conflict) return std::nullopt;
    return base::Usage{.complete = false};  // directories move during the walk
  }
}

}  // namespace

std::optional<base::Usage> usage_of_written(const std::string& path, const Still& still) {
  const auto usage = walk(path, still ? kShortWalk : kWalk);
  if (!usage || usage->complete || !still) return usage;
  const auto held = still();
  return walk(path, kWalk);
}

}  // namespace moorage::workspace
