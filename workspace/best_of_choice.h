// Which attempt of a best-of is promoted: a pure decision from rows.
#pragma once

#include <optional>
#include <vector>

#include "state_db/best_of.h"

namespace moorage::workspace {

// first_passing: the lowest number that passed, known once all before it have ended; what is faster
// by luck does not win. smallest_diff: of those that passed the one whose patch has the fewest
// bytes (then lines, then the lower number), known once all have ended; one that could not be
// measured comes last. Nothing: none, or not known yet. `attempts` by number.
std::optional<uint32_t> choose_attempt(state_db::Promote promote,
                                       const std::vector<state_db::AttemptRow>& attempts);

}  // namespace moorage::workspace
