// Pushes of git that somebody has to allow. An approval is for one exact push: this repository,
// this ref, from this commit to that one. The same push again finds the same approval, and passes
// once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "state_db/lifecycle.h"

namespace moorage::state_db {

class Store;

// clang-format off

//  new -> [waiting] -> [approved] -> [used]       waiting, approved -> [refused] -> approved
//             |            |
//             +------------+--> [expired]         (too old, or the ref was pushed anew)
// `used` is written before the push goes on, so that it never passes twice. It may still fail at the
// host, which git inside shows; then it is asked about anew.
enum class ApprovalState : uint8_t { waiting, approved, used, refused, expired };

template <>
struct LifeCycle<ApprovalState> : LifeCycleOf<ApprovalState, base::ApprovalId> {
  using enum ApprovalState;
  static constexpr std::string_view kNoun = "approval";
  static constexpr std::array<std::string_view, 5> kNames{
      "waiting", "approved", "used", "refused", "expired"};
  static constexpr std::array<Move<ApprovalState>, 7> kMoves{{
      {waiting, approved}, {waiting, refused}, {waiting, expired},
      {approved, used}, {approved, refused}, {approved, expired}, {refused, approved}}};
};
// clang-format on

struct ApprovalRow {
  base::ApprovalId id{};
  base::WorkspaceId workspace{};
  std::string repository{};  // "https://git.example.com/acme/shop.git"
  std::string ref{};
  std::string old_id{};  // zeros: the ref did not exist
  std::string new_id{};
  std::optional<int64_t> commits{};  // from old to new; empty: a new ref
  std::string title{};               // of the new commit: untrusted
  ApprovalState state = ApprovalState::waiting;
  std::string reason{};
  int64_t asked_wall_ms = 0;
  std::optional<int64_t> decided_uid{};
  int64_t decided_wall_ms = 0;
  int64_t used_wall_ms = 0;
};

class ApprovalTable {
 public:
  explicit ApprovalTable(Store& store) : store_(store) {}

  // The one of this exact push that is waiting, approved or refused; else a new one that waits, in
  // place of those that wait for the same ref.
  ApprovalRow ask(const ApprovalRow& wanted);
  std::optional<ApprovalRow> find_same(const ApprovalRow& push);  // as ask(), without a new one
  std::optional<ApprovalRow> find(base::ApprovalId id);
  std::vector<ApprovalRow> open();  // waiting or approved, newest first, at most kMostListed
  std::vector<ApprovalRow> of(base::WorkspaceId workspace);  // in any state; the same

  struct Decision {
    ApprovalState to = ApprovalState::approved;  // or refused
    uint32_t uid = 0;
    std::string reason{};
  };
  // From the state that the row says; conflict: it changed.
  ApprovalRow decide(const ApprovalRow& row, const Decision& decision);
  // All or none: approved -> used. False: one of them is not approved any more.
  bool use(const std::vector<base::ApprovalId>& ids);

  static constexpr int64_t kWaits_ms = 7LL * 86'400'000;
  static constexpr int64_t kLasts_ms = 86'400'000;  // after an approval or a refusal
  static constexpr size_t kMostListed = 1000;
  static constexpr size_t kMostWaiting = 100;  // of a workspace

 private:
  void expire_old();
  Store& store_;
};

}  // namespace moorage::state_db
