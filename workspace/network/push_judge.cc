#include "workspace/network/push_judge.h"

#include <algorithm>

#include "backends/egress_client.h"
#include "base/error.h"
#include "base/log.h"
#include "base/net/url_path.h"
#include "state_db/store.h"
#include "state_db/tables/workspaces.h"
#include "workspace/access/access.h"
#include "workspace/exec/query.h"
#include "workspace/network/commit_chain.h"

namespace moorage::workspace {
namespace {

using state_db::ApprovalRow;
using state_db::ApprovalState;
using state_db::ApprovalTable;

constexpr std::chrono::milliseconds kPatience{5'000};
constexpr std::chrono::milliseconds kPatienceGit{20'000};  // for all refs of a push
constexpr std::string_view kScheme = "https://";
constexpr size_t kMaxUrl = 4096;

constexpr std::string_view kModes[] = {"refuse", "ask", "allow"};

// The egress reads hostile bytes: what it says is shown to people, so it is checked again.
void check_question(const base::PushQuestion& question) {
  const std::string& url = question.repository;
  bool fits = url.starts_with(kScheme) && url.size() <= kMaxUrl &&
              base::is_plain_path(url.substr(kScheme.size())) &&
              question.commands.size() <= base::kMaxPushed;
  for (const base::PushCommand& command : question.commands) {
    fits = fits && base::is_ref(command.ref) && base::is_object_id(command.old_id) &&
           base::is_object_id(command.new_id) && command.old_id.size() == command.new_id.size();
  }
  if (!fits) throw Error(Code::corrupted, "moorage-egress asked about a push that is not valid");
}

CommitChain chain_of(const LiveSandbox& sandbox, const ApprovalRow& push,
                     std::chrono::steady_clock::time_point until) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      until - std::chrono::steady_clock::now());
  if (left.count() <= 0) return {};
  return read_commit_chain(commits_between(sandbox, push.old_id, push.new_id, left), push.old_id,
                           push.new_id);
}

// Why the new commit may not follow the old one; empty: it may.
std::string trouble_of(const ApprovalRow& push, const CommitChain& chain) {
  if (base::is_zero_id(push.old_id) || chain.reaches) return {};
  if (!chain.has_new)
    return "git in the sandbox does not show that the new commit follows the old one";
  return "this would rewrite " + push.ref + "; merge or rebase onto what it has, and push again";
}

std::string waits(const ApprovalRow& row) {
  return "waits for approval " + row.id.str() + ": moorage approve " + row.id.str();
}

}  // namespace

base::PushPolicy push_policy(const state_db::WorkspacePolicy& policy) {
  base::PushPolicy push;
  const auto* mode = std::ranges::find(kModes, policy.push);
  push.mode = mode == std::end(kModes) ? base::PushMode::refuse
                                       : static_cast<base::PushMode>(mode - std::begin(kModes));
  push.refs = policy.push_refs;
  return push;
}

struct PushJudge::Verdict {
  std::string why{};            // against it; empty: nothing
  base::ApprovalId approved{};  // that it uses up
};

base::PushAnswer PushJudge::judge(const LiveSandbox& sandbox,
                                  const base::PushQuestion& question) const {
  check_question(question);
  const auto row = state_db::WorkspaceTable(context_.store).get(sandbox.workspace);
  const base::PushPolicy policy = push_policy(row.policy);
  base::PushAnswer answer{question.id, {}};
  const Until until = std::chrono::steady_clock::now() + kPatienceGit;
  std::vector<base::ApprovalId> used;
  bool passes = true;
  for (const base::PushCommand& command : question.commands) {
    ApprovalRow push;
    push.workspace = row.id;
    push.repository = question.repository;
    push.ref = command.ref;
    push.old_id = command.old_id;
    push.new_id = command.new_id;
    const Verdict verdict = judge_one(sandbox, policy, push, until);
    if (verdict.approved) used.push_back(verdict.approved);
    passes = passes && verdict.why.empty();
    answer.reasons.push_back(verdict.why);
  }
  if (passes && !used.empty() && !ApprovalTable(context_.store).use(used))
    answer.reasons.assign(question.commands.size(), "the approval was withdrawn; push again");
  return answer;
}

PushJudge::Verdict PushJudge::judge_one(const LiveSandbox& sandbox, const base::PushPolicy& policy,
                                        const ApprovalRow& push, Until until) const {
  if (policy.mode == base::PushMode::refuse) return {"this workspace may not push"};
  if (!base::may_push(policy, push.ref))
    return {"only these refs may be pushed: " + base::patterns_text(policy)};
  if (base::is_zero_id(push.new_id)) return {"refs may not be deleted"};
  if (policy.mode == base::PushMode::ask) {
    const auto known = ApprovalTable(context_.store).find_same(push);
    if (!known) return ask(sandbox, push, until);
    switch (known->state) {
      case ApprovalState::approved:
        return {{}, known->id};
      case ApprovalState::refused:
        return {user_name(static_cast<uint32_t>(known->decided_uid.value_or(0))) + " refused it (" +
                known->id.str() + ")"};
      case ApprovalState::waiting:
      case ApprovalState::used:
      case ApprovalState::expired:
        return {waits(*known)};
    }
  }
  if (base::is_zero_id(push.old_id)) return {};
  return {trouble_of(push, chain_of(sandbox, push, until))};
}

PushJudge::Verdict PushJudge::ask(const LiveSandbox& sandbox, ApprovalRow push, Until until) const {
  const CommitChain chain = chain_of(sandbox, push, until);
  if (const std::string why = trouble_of(push, chain); !why.empty()) return {why};
  push.title = chain.title;
  if (!base::is_zero_id(push.old_id)) push.commits = chain.commits;
  return {waits(ApprovalTable(context_.store).ask(push))};
}

void PushJudge::answer(const LiveSandbox& sandbox, const std::string& control_path,
                       const base::PushQuestion& question) const {
  try {
    base::PushAnswer answer;
    try {
      answer = judge(sandbox, question);
    } catch (const Error& error) {
      answer = {question.id, std::vector<std::string>(question.commands.size(), error.message())};
    }
    backends::EgressClient(control_path).answer_push(answer, kPatience);
  } catch (const Error& error) {
    base::log(base::LogLevel::warning, "network.push_not_answered",
              {{"sb", sandbox.sandbox}, {"error", error.message()}});
  }
}

}  // namespace moorage::workspace
