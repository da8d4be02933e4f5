// base::tree_usage where files have second names in other trees as well: each name counts with its
// share of the file, bytes and inode. So the sum over all trees is what they take together.
#pragma once

#include <string>

#include "base/files.h"

namespace moorage::base {

Usage shared_tree_usage(const std::string& path, const UsageLimits& limits = {});

}  // namespace moorage::base
