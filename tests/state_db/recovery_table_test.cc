#include "state_db/recovery_table.h"

#include <catch2/catch.hpp>
#include <set>

using namespace moorage;
using namespace moorage::state_db;

namespace {

template <typename Table>
constexpr bool is_full(const Table& table) {
  for (const auto& line : table) {
    for (const Repair mend : line) {
      if (mend == Repair::unset) return false;
    }
  }
  return true;
}

constexpr bool has_all(const auto& line) {
  for (const Repair mend : line) {
    if (mend == Repair::unset) return false;
  }
  return true;
}

static_assert(is_full(kRepositories) && is_full(kBaseTrees) && is_full(kWorkspaces) &&
              is_full(kSandboxes) && has_all(kRunningExec) && has_all(kUploads) &&
              has_all(kStrangers));

// One line per state, in the order of the life cycle.
template <typename State, typename Table>
constexpr bool has_a_line_each(const Table& table) {
  return table.size() == state_db::LifeCycle<State>::kNames.size();
}
static_assert(has_a_line_each<state_db::RepositoryState>(kRepositories));
static_assert(has_a_line_each<state_db::WorkspaceState>(kWorkspaces));
static_assert(has_a_line_each<state_db::SandboxState>(kSandboxes));

// Every transient state needs an action: no verb leaves a row there for good.
template <typename State>
void check_that_steps_do_not_rest(std::set<State> resting, auto&& seen, auto&& mends) {
  for (size_t i = 0; i < state_db::LifeCycle<State>::kNames.size(); ++i) {
    const auto state = static_cast<State>(i);
    if (resting.contains(state)) continue;
    INFO(state_db::state_name(state));
    for (const auto what : seen) CHECK(mends(state, what) != Repair::nothing);
  }
}

}  // namespace

TEST_CASE("every interrupted step is settled, whatever is found") {
  using state_db::RepositoryState;
  using state_db::SandboxState;
  using state_db::WorkspaceState;
  const auto decided = [](auto state, auto seen) { return decide(state, seen); };
  check_that_steps_do_not_rest<RepositoryState>(
      {RepositoryState::ready, RepositoryState::broken, RepositoryState::evicted},
      std::set{RepositorySeen::at_work, RepositorySeen::mirror, RepositorySeen::no_mirror},
      decided);
  check_that_steps_do_not_rest<WorkspaceState>(
      {WorkspaceState::ready, WorkspaceState::archived, WorkspaceState::deleted,
       WorkspaceState::failed},
      std::set{LayerSeen::at_work, LayerSeen::complete, LayerSeen::partial, LayerSeen::missing},
      decided);
  check_that_steps_do_not_rest<SandboxState>(
      {SandboxState::destroyed},
      std::set{SandboxSeen::at_work, SandboxSeen::alive, SandboxSeen::dead}, decided);
}

TEST_CASE("running things are never reverted, and possible work is never removed") {
  using state_db::SandboxState;
  CHECK(decide(SandboxState::running, SandboxSeen::alive) == Repair::adopt);
  CHECK(decide(SandboxState::frozen, SandboxSeen::alive) == Repair::adopt);
  CHECK(decide(ExecSeen::known) == Repair::adopt);
  CHECK(decide(ExecSeen::silent) == Repair::wait);
  CHECK(decide(Orphan::layer) == Repair::keep_aside);
  CHECK(decide(Orphan::workspace_directory) == Repair::keep_aside);
  CHECK(decide(state_db::WorkspaceState::ready, LayerSeen::missing) == Repair::report);
  CHECK(decide(state_db::WorkspaceState::creating, LayerSeen::complete) == Repair::finish);
  for (const auto seen : {LayerSeen::complete, LayerSeen::partial, LayerSeen::missing}) {
    // Back to the previous state: at any moment one of the two is whole, and the row says which.
    CHECK(decide(state_db::WorkspaceState::archiving, seen) == Repair::undo);
    CHECK(decide(state_db::WorkspaceState::unarchiving, seen) == Repair::undo);
  }
  CHECK(decide(state_db::WorkspaceState::archived, LayerSeen::complete) == Repair::finish);
  CHECK(decide(state_db::WorkspaceState::archived, LayerSeen::missing) == Repair::nothing);
  for (const auto& line : kWorkspaces) CHECK(line.front() == Repair::wait);
  for (const auto& line : kSandboxes) CHECK(line.front() == Repair::wait);
}
