#include "workspace/best_of/choice.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace moorage::workspace {
namespace {

using state_db::AttemptRow;
using state_db::AttemptState;

std::optional<uint32_t> first_passing(const std::vector<AttemptRow>& attempts) {
  for (const auto& attempt : attempts) {
    if (attempt.state == AttemptState::passed) return attempt.number;
    if (!attempt.has_ended()) return std::nullopt;
  }
  return std::nullopt;
}

auto size_of(const AttemptRow& attempt) {
  constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();
  const uint64_t bytes = attempt.diff ? attempt.diff->bytes : kUnknown;
  const uint64_t lines = attempt.diff ? attempt.diff->added + attempt.diff->removed : kUnknown;
  return std::tuple(bytes, lines, attempt.number);
}

std::optional<uint32_t> smallest_diff(const std::vector<AttemptRow>& attempts) {
  const AttemptRow* smallest = nullptr;
  for (const auto& attempt : attempts) {
    if (!attempt.has_ended()) return std::nullopt;
    if (attempt.state != AttemptState::passed) continue;
    if (smallest == nullptr || size_of(attempt) < size_of(*smallest)) smallest = &attempt;
  }
  if (smallest == nullptr) return std::nullopt;
  return smallest->number;
}

}  // namespace

std::optional<uint32_t> choose_attempt(state_db::Promote promote,
                                       const std::vector<AttemptRow>& attempts) {
  switch (promote) {
    case state_db::Promote::none:
      return std::nullopt;
    case state_db::Promote::first_passing:
      return first_passing(attempts);
    case state_db::Promote::smallest_diff:
      return smallest_diff(attempts);
  }
  return std::nullopt;
}

}  // namespace moorage::workspace
