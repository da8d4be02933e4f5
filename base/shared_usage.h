// base::tree_usage for files that also have names in other trees: each name counts as a share of
// the file's bytes and inode. So the sum over all trees is their total usage.
#pragma once

#include <string>

#include "base/os/files.h"

namespace moorage::base {

Usage shared_tree_usage(const std::string& path, const UsageLimits& limits = {});

}  // namespace moorage::base
