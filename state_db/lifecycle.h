// The life cycles, drawn and held as tables. `Store::move` is the only way to change a state and
// refuses moves that the tables lack. Resting states are marked with []; any other state found at
// start is an interrupted step, which workspace/ finishes. The names are part of the API.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/ids.h"

namespace moorage::state_db {

// clang-format off

//  new -> cloning -> [ready] <-> fetching       cloning, ready, fetching -> [broken]
//            ^          |                       broken -> cloning          (rebuilt, never served)
//            +------ [evicted] <- broken        evicted -> cloning         (wanted again)
enum class RepositoryState : uint8_t { cloning, ready, fetching, broken, evicted };

//  new -> creating -> [ready] -> archiving -> [archived] -> unarchiving -> ready
//            |            |                       |
//            v            v                       v       an undone archiving: ready
//         [failed] -> deleting -> [deleted] <- deleting   an undone unarchiving: archived
// `deleted` is a tombstone: the name is free again, the layers stay until the purge, undelete goes
// back to ready (or archived). A purge is a mark in the row, not a state.
enum class WorkspaceState : uint8_t {
  creating, ready, archiving, archived, unarchiving, deleting, deleted, failed };

//  new -> starting -> [running] <-> frozen
//            |            |           |
//            +--------> stopping <----+         starting, running, frozen, stopping -> lost
//                         |                     (found dead, or its start was cut)
//                      [stopped] -> [destroyed] <- lost
// `lost` may still have processes or mounts. `stopped` has neither; `destroyed` has no directory
// and no id range. At most one sandbox of a workspace is in any other state.
enum class SandboxState : uint8_t { starting, running, frozen, stopping, stopped, lost, destroyed };

//  new -> running -> [exited], [signalled], [timed_out], [oom_killed], [cancelled] or [interrupted]
// `running` covers the intent and the run: one write before a command starts.
enum class ExecState : uint8_t {
  running, exited, signalled, timed_out, oom_killed, cancelled, interrupted };

//  new -> taking -> [kept] -> [dropped] <- taking        (how a cut one is settled: state_db/tables/snapshots.h)
enum class SnapshotState : uint8_t { taking, kept, dropped };

template <typename State>
struct Move { State from; State to; };

// Each has: the id, the noun of its events, names in enum order, the first state, the legal moves.
template <typename State>
struct LifeCycle;

template <>
struct LifeCycle<RepositoryState> {
  using S = RepositoryState;
  using Id = base::RepoId;
  static constexpr std::string_view kNoun = "repository";
  static constexpr std::array<std::string_view, 5> kNames{
      "cloning", "ready", "fetching", "broken", "evicted"};
  static constexpr S kFirst = S::cloning;
  static constexpr std::array<Move<S>, 10> kMoves{{
      {S::cloning, S::ready},  {S::cloning, S::broken},
      {S::ready, S::fetching}, {S::ready, S::broken},    {S::ready, S::evicted},
      {S::fetching, S::ready}, {S::fetching, S::broken},
      {S::broken, S::cloning}, {S::broken, S::evicted},  {S::evicted, S::cloning}}};
};

template <>
struct LifeCycle<WorkspaceState> {
  using S = WorkspaceState;
  using Id = base::WorkspaceId;
  static constexpr std::string_view kNoun = "workspace";
  static constexpr std::array<std::string_view, 8> kNames{
      "creating", "ready", "archiving", "archived", "unarchiving", "deleting", "deleted", "failed"};
  static constexpr S kFirst = S::creating;
  static constexpr std::array<Move<S>, 14> kMoves{{
      {S::creating, S::ready},       {S::creating, S::failed},
      {S::ready, S::archiving},      {S::ready, S::deleting},
      {S::archiving, S::archived},   {S::archiving, S::ready},
      {S::archived, S::unarchiving}, {S::archived, S::deleting},
      {S::unarchiving, S::ready},    {S::unarchiving, S::archived},
      {S::failed, S::deleting},      {S::deleting, S::deleted},
      {S::deleted, S::ready},        {S::deleted, S::archived}}};
};

template <>
struct LifeCycle<SandboxState> {
  using S = SandboxState;
  using Id = base::SandboxId;
  static constexpr std::string_view kNoun = "sandbox";
  static constexpr std::array<std::string_view, 7> kNames{
      "starting", "running", "frozen", "stopping", "stopped", "lost", "destroyed"};
  static constexpr S kFirst = S::starting;
  static constexpr std::array<Move<S>, 13> kMoves{{
      {S::starting, S::running},  {S::starting, S::stopping}, {S::starting, S::lost},
      {S::running, S::frozen},    {S::running, S::stopping},  {S::running, S::lost},
      {S::frozen, S::running},    {S::frozen, S::stopping},   {S::frozen, S::lost},
      {S::stopping, S::stopped},  {S::stopping, S::lost},
      {S::stopped, S::destroyed}, {S::lost, S::destroyed}}};
};

template <>
struct LifeCycle<ExecState> {
  using S = ExecState;
  using Id = base::ExecId;
  static constexpr std::string_view kNoun = "exec";
  static constexpr std::array<std::string_view, 7> kNames{
      "running", "exited", "signalled", "timed_out", "oom_killed", "cancelled", "interrupted"};
  static constexpr S kFirst = S::running;
  static constexpr std::array<Move<S>, 6> kMoves{{
      {S::running, S::exited},     {S::running, S::signalled}, {S::running, S::timed_out},
      {S::running, S::oom_killed}, {S::running, S::cancelled}, {S::running, S::interrupted}}};
};

template <>
struct LifeCycle<SnapshotState> {
  using S = SnapshotState;
  using Id = base::SnapshotId;
  static constexpr std::string_view kNoun = "snapshot";
  static constexpr std::array<std::string_view, 3> kNames{"taking", "kept", "dropped"};
  static constexpr S kFirst = S::taking;
  static constexpr std::array<Move<S>, 3> kMoves{{
      {S::taking, S::kept}, {S::taking, S::dropped}, {S::kept, S::dropped}}};
};
// clang-format on

template <typename State>
constexpr std::string_view state_name(State state) {
  return LifeCycle<State>::kNames.at(static_cast<size_t>(state));
}

template <typename State>
constexpr std::optional<State> state_from_name(std::string_view name) {
  for (size_t i = 0; i < LifeCycle<State>::kNames.size(); ++i) {
    if (LifeCycle<State>::kNames[i] == name) return static_cast<State>(i);
  }
  return std::nullopt;
}

template <typename State>
constexpr bool may_move(State from, State to) {
  for (const auto& move : LifeCycle<State>::kMoves) {
    if (move.from == from && move.to == to) return true;
  }
  return false;
}

}  // namespace moorage::state_db
