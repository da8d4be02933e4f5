// Counts a layer that is written to, for the watcher of disks (quota_watch.h). A short walk comes
// first. Where that is not the whole, or fails as directories are moved about under it, there is
// one more, longer, while those that write stand still.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/files.h"

namespace moorage::workspace {

// What keeps the writers still while it lives.
using Still = std::function<std::shared_ptr<void>()>;

// Not complete: it cannot be counted, and what was found is a lower bound. Empty: it could not be
// read, or is gone. Without `still` nobody writes, and there is one walk.
std::optional<base::Usage> usage_of_written(const std::string& path, const Still& still);

}  // namespace moorage::workspace
