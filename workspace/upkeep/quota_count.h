// Counts a layer under writers, for the disk watcher (quota_watch.h). A short walk comes first. If
// it is incomplete, or fails because directories move, a longer one follows while the writers are
// frozen.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/os/files.h"

namespace moorage::workspace {

// Freezes the writers while its result lives.
using Still = std::function<std::shared_ptr<void>()>;

// Incomplete: it cannot be counted; the result is a lower bound. Empty: it is unreadable or gone.
// Without `still` nobody writes, and one walk is enough.
std::optional<base::Usage> usage_of_written(const std::string& path, const Still& still);

}  // namespace moorage::workspace
