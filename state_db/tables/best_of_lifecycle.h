// The life cycles of a best-of and of its attempts, in the style of lifecycle.h.
#pragma once

#include "state_db/lifecycle.h"

namespace moorage::state_db {

// clang-format off

//  new -> preparing -> running -> [done], [cancelled] or [failed]       preparing -> [failed]
// `preparing` until its patches are stored and its forks exist. From `running` on the daemon drives
// it to its end, across daemon restarts too.
enum class BestOfState : uint8_t { preparing, running, done, cancelled, failed };

//  new -> waiting -> applying -> testing -> [passed]
//            |          |           |
//            +----------+-----------+--> [failed], [interrupted] or [cancelled]
// No state is entered twice, so no command of an attempt runs twice.
enum class AttemptState : uint8_t {
  waiting, applying, testing, passed, failed, interrupted, cancelled };

template <>
struct LifeCycle<BestOfState> : LifeCycleOf<BestOfState, base::BestOfId> {
  using enum BestOfState;
  static constexpr std::string_view kNoun = "best_of";
  static constexpr std::array<std::string_view, 5> kNames{
      "preparing", "running", "done", "cancelled", "failed"};
  static constexpr std::array<Move<BestOfState>, 5> kMoves{{
      {preparing, running}, {preparing, failed},
      {running, done}, {running, cancelled}, {running, failed}}};
};

template <>
struct LifeCycle<AttemptState> : LifeCycleOf<AttemptState, base::AttemptId> {
  using enum AttemptState;
  static constexpr std::string_view kNoun = "attempt";
  static constexpr std::array<std::string_view, 7> kNames{
      "waiting", "applying", "testing", "passed", "failed", "interrupted", "cancelled"};
  static constexpr std::array<Move<AttemptState>, 12> kMoves{{
      {waiting, applying}, {waiting, failed}, {waiting, interrupted}, {waiting, cancelled},
      {applying, testing}, {applying, failed}, {applying, interrupted}, {applying, cancelled},
      {testing, passed}, {testing, failed}, {testing, interrupted}, {testing, cancelled}}};
};
// clang-format on

}  // namespace moorage::state_db
