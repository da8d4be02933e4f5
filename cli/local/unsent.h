// What a repository has beside its files, branches and tags, and a workspace does not get: stashes,
// git notes, other refs, remotes, hooks and settings. Each kind is one sentence for the user.
#pragma once

#include <string>
#include <vector>

#include "cli/local/checkout.h"

namespace moorage::cli {

std::vector<std::string> unsent(const Checkout& checkout);

}  // namespace moorage::cli
