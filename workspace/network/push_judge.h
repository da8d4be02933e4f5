// Answers the pushes that a moorage-egress asks about: each new one becomes an approval that waits,
// an approved one passes once, and none rewrites history.
#pragma once

#include <chrono>
#include <string>

#include "base/net/push_policy.h"
#include "state_db/tables/approvals.h"
#include "state_db/tables/workspace_row.h"
#include "workspace/context/context.h"
#include "workspace/context/live_sandboxes.h"

namespace moorage::workspace {

base::PushPolicy push_policy(const state_db::WorkspacePolicy& policy);

class PushJudge {
 public:
  explicit PushJudge(Context& context) : context_(context) {}

  // May ask git inside: takes seconds at most. An approval is used up if the push may pass.
  base::PushAnswer judge(const LiveSandbox& sandbox, const base::PushQuestion& question) const;
  // The same, to the egress at that socket. Never throws.
  void answer(const LiveSandbox& sandbox, const std::string& control_path,
              const base::PushQuestion& question) const;

 private:
  struct Verdict;
  using Until = std::chrono::steady_clock::time_point;
  Verdict judge_one(const LiveSandbox& sandbox, const base::PushPolicy& policy,
                    const state_db::ApprovalRow& push, Until until) const;
  Verdict ask(const LiveSandbox& sandbox, state_db::ApprovalRow push, Until until) const;

  Context& context_;
};

}  // namespace moorage::workspace
