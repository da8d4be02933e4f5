// Chooses the attempt of a best-of to promote, from rows alone.
#pragma once

#include <optional>
#include <vector>

#include "state_db/tables/best_of.h"

namespace moorage::workspace {

// first_passing: the lowest number that passed, known once all before it have ended; being faster
// by luck does not win. smallest_diff: the passing attempt whose patch has the fewest bytes (then
// lines, then the lower number), known once all have ended; unmeasured ones come last. nullopt:
// none, or not known yet. `attempts` are sorted by number.
std::optional<uint32_t> choose_attempt(state_db::Promote promote,
                                       const std::vector<state_db::AttemptRow>& attempts);

}  // namespace moorage::workspace
