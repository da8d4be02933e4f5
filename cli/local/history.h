// The history of a shallow checkout. The caller's git fetches missing commits from its remotes,
// with his credentials. If some are not there, branches and tags that reach the cut start at it:
// the same commits, but with other ids, because the first ones have no parents. Only the temporary
// repository, which borrows the objects of the checkout, is written.
#pragma once

#include <string>
#include <vector>

#include "cli/local/checkout.h"

namespace moorage::cli {

struct History {
  std::string head;       // its commit; empty: the checkout has none
  std::vector<Ref> refs;  // branches, tags and remote branches
};

// Completes `history`, which is as in the checkout, or starts it at the cut; empties it if git can
// do neither. Returns a sentence for the user; empty: the checkout is not shallow.
std::string complete_history(const Checkout& checkout, const std::string& repository,
                             History& history);

// Words of a git call in the temporary repository that uses the remotes and credentials of the
// checkout.
std::vector<std::string> with_callers_settings(const Checkout& checkout,
                                               std::vector<std::string> words);

// The line that says why git failed; advice follows it.
std::string reason_of(const base::ProcessResult& result);

}  // namespace moorage::cli
