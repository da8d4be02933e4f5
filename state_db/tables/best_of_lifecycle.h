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
struct LifeCycle<BestOfState> {
  using S = BestOfState;
  using Id = base::BestOfId;
  static constexpr std::string_view kNoun = "best_of";
  static constexpr std::array<std::string_view, 5> kNames{
      "preparing", "running", "done", "cancelled", "failed"};
  static constexpr S kFirst = S::preparing;
  static constexpr std::array<Move<S>, 5> kMoves{{
      {S::preparing, S::running}, {S::preparing, S::failed},
      {S::running, S::done},      {S::running, S::cancelled}, {S::running, S::failed}}};
};

template <>
struct LifeCycle<AttemptState> {
  using S = AttemptState;
  using Id = base::AttemptId;
  static constexpr std::string_view kNoun = "attempt";
  static constexpr std::array<std::string_view, 7> kNames{
      "waiting", "applying", "testing", "passed", "failed", "interrupted", "cancelled"};
  static constexpr S kFirst = S::waiting;
  static constexpr std::array<Move<S>, 12> kMoves{{
      {S::waiting, S::applying},  {S::waiting, S::failed},
      {S::waiting, S::interrupted}, {S::waiting, S::cancelled},
      {S::applying, S::testing},  {S::applying, S::failed},
      {S::applying, S::interrupted}, {S::applying, S::cancelled},
      {S::testing, S::passed},    {S::testing, S::failed},
      {S::testing, S::interrupted}, {S::testing, S::cancelled}}};
};
// clang-format on

}  // namespace moorage::state_db
