// The life cycles, drawn and held as tables. `Store::move` is the only way to change a state and
// refuses moves that the tables lack. Resting states are marked with []; any other state found at
// start is an interrupted step, which workspace/ finishes. The names are part of the API.
#pragma once

#include <algorithm>
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
//                      [stopped] -> [destroyed] <- lost     stopping -> running: its machine cannot be reached
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

// The first state of each life cycle is the first of its enumeration.
template <typename State, typename IdOfRow>
struct LifeCycleOf { using Id = IdOfRow; static constexpr State kFirst{}; };

// Each also has: the noun of its events, names in enum order, the legal moves.
template <typename State>
struct LifeCycle;

template <>
struct LifeCycle<RepositoryState> : LifeCycleOf<RepositoryState, base::RepoId> {
  using enum RepositoryState;
  static constexpr std::string_view kNoun = "repository";
  static constexpr std::array<std::string_view, 5> kNames{
      "cloning", "ready", "fetching", "broken", "evicted"};
  static constexpr std::array<Move<RepositoryState>, 10> kMoves{{
      {cloning, ready}, {cloning, broken}, {ready, fetching}, {ready, broken}, {ready, evicted},
      {fetching, ready}, {fetching, broken}, {broken, cloning}, {broken, evicted},
      {evicted, cloning}}};
};

template <>
struct LifeCycle<WorkspaceState> : LifeCycleOf<WorkspaceState, base::WorkspaceId> {
  using enum WorkspaceState;
  static constexpr std::string_view kNoun = "workspace";
  static constexpr std::array<std::string_view, 8> kNames{
      "creating", "ready", "archiving", "archived", "unarchiving", "deleting", "deleted", "failed"};
  static constexpr std::array<Move<WorkspaceState>, 14> kMoves{{
      {creating, ready}, {creating, failed}, {ready, archiving}, {ready, deleting},
      {archiving, archived}, {archiving, ready}, {archived, unarchiving}, {archived, deleting},
      {unarchiving, ready}, {unarchiving, archived}, {failed, deleting}, {deleting, deleted},
      {deleted, ready}, {deleted, archived}}};
};

template <>
struct LifeCycle<SandboxState> : LifeCycleOf<SandboxState, base::SandboxId> {
  using enum SandboxState;
  static constexpr std::string_view kNoun = "sandbox";
  static constexpr std::array<std::string_view, 7> kNames{
      "starting", "running", "frozen", "stopping", "stopped", "lost", "destroyed"};
  static constexpr std::array<Move<SandboxState>, 14> kMoves{{
      {starting, running}, {starting, stopping}, {starting, lost},
      {running, frozen}, {running, stopping}, {running, lost},
      {frozen, running}, {frozen, stopping}, {frozen, lost},
      {stopping, stopped}, {stopping, running}, {stopping, lost}, {stopped, destroyed}, {lost, destroyed}}};
};

template <>
struct LifeCycle<ExecState> : LifeCycleOf<ExecState, base::ExecId> {
  using enum ExecState;
  static constexpr std::string_view kNoun = "exec";
  static constexpr std::array<std::string_view, 7> kNames{
      "running", "exited", "signalled", "timed_out", "oom_killed", "cancelled", "interrupted"};
  static constexpr std::array<Move<ExecState>, 6> kMoves{{
      {running, exited}, {running, signalled}, {running, timed_out},
      {running, oom_killed}, {running, cancelled}, {running, interrupted}}};
};

template <>
struct LifeCycle<SnapshotState> : LifeCycleOf<SnapshotState, base::SnapshotId> {
  using enum SnapshotState;
  static constexpr std::string_view kNoun = "snapshot";
  static constexpr std::array<std::string_view, 3> kNames{"taking", "kept", "dropped"};
  static constexpr std::array<Move<SnapshotState>, 3> kMoves{{
      {taking, kept}, {taking, dropped}, {kept, dropped}}};
};
// clang-format on

// A value of an enumeration and its word, from the list of its words in their order.
template <typename Enum, size_t kCount>
constexpr std::optional<Enum> from_word(const std::array<std::string_view, kCount>& words,
                                        std::string_view word) {
  const auto found = std::find(words.begin(), words.end(), word);
  if (found == words.end()) return std::nullopt;
  return static_cast<Enum>(found - words.begin());
}
template <typename Enum, size_t kCount>
constexpr std::string_view to_word(const std::array<std::string_view, kCount>& words, Enum value) {
  return words.at(static_cast<size_t>(value));
}

template <typename State>
constexpr std::string_view state_name(State state) {
  return to_word(LifeCycle<State>::kNames, state);
}

template <typename State>
constexpr std::optional<State> state_from_name(std::string_view name) {
  return from_word<State>(LifeCycle<State>::kNames, name);
}

template <typename State>
constexpr bool may_move(State from, State to) {
  const auto& moves = LifeCycle<State>::kMoves;
  return std::any_of(moves.begin(), moves.end(),
                     [&](const auto& move) { return move.from == from && move.to == to; });
}

}  // namespace moorage::state_db
