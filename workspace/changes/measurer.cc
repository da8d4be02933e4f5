#include "workspace/changes/measurer.h"

#include <exception>

#include "base/background.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store.h"
#include "state_db/tables/execs.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/layer_disk.h"
#include "state_db/tables/repositories.h"
#include "workspace/changes/stable_read.h"
#include "workspace/context/disk_use.h"
#include "workspace/exec/query.h"

namespace moorage::workspace {
namespace {

using state_db::WorkspaceState;
using std::chrono::milliseconds;

constexpr size_t kThreads = 2;
constexpr milliseconds kPatience{1'000};
constexpr milliseconds kFreshFor{10'000};
constexpr milliseconds kGitDeadline{2'000};
constexpr milliseconds kLastGitDeadline{1'000};
constexpr base::UsageLimits kUsageLimits{.time = milliseconds(10'000)};

constexpr size_t kMostKnown = 500;  // words of one command

// What its repository here has: the branch's beginning, and the branches of an imported checkout.
std::vector<std::string> known_commits(const Context& context, const state_db::WorkspaceRow& row) {
  std::vector<std::string> known{state_db::began_at(row)};
  if (!row.moved_commit.empty()) known.push_back(row.moved_commit);
  const auto repository = state_db::RepositoryTable(context.store).get(row.repository);
  if (has_upstream(repository.scope)) return known;
  for (auto& tip : context.repos.local_branches(repo_directory(row.repository), kMostKnown))
    known.push_back(std::move(tip));
  return known;
}

// "main" of "refs/heads/main", "pull/7/head" of "refs/pull/7/head": its name under
// refs/remotes/origin.
std::string after_kind(std::string_view ref) {
  for (const std::string_view kind : {"refs/heads/", "refs/"})
    if (ref.starts_with(kind)) return std::string(ref.substr(kind.size()));
  return std::string(ref);
}

base::Usage measured(const std::string& layer) {
  const base::Background background;
  const auto usage = base::tree_usage(layer, kUsageLimits);
  if (usage.complete) return usage;
  throw Error(Code::resource_exhausted, "it has too many files to count in time");
}

uint32_t owner_of(Context& context, base::WorkspaceId id) {
  return state_db::WorkspaceTable(context.store).get(id).owner_uid;
}

}  // namespace

Measurer::Measurer(Context& context)
    : context_(context),
      changes_(context.repos),
      flights_(
          kThreads, [this](int64_t key) { measure({key}); }, base::SingleFlight::Fair{}) {}

void Measurer::set_uncounted(base::WorkspaceId id, base::ExecId ended) {
  const std::lock_guard lock(mutex_);
  uncounted_[id] = ended;
}

void Measurer::refresh(base::WorkspaceId id, base::ExecId ended) {
  if (ended) set_uncounted(id, ended);
  flights_.wait(id.value, kPatience, owner_of(context_, id));
}

void Measurer::refresh_later(base::WorkspaceId id, base::ExecId ended) {
  if (ended) set_uncounted(id, ended);
  if (!flights_.ran_within(id.value, kFreshFor)) {
    flights_.request(id.value, owner_of(context_, id));
  } else if (ended) {
    const std::lock_guard lock(mutex_);
    put_off_.insert(id);
  }
}

void Measurer::catch_up() {
  const std::lock_guard lock(mutex_);
  std::erase_if(put_off_, [&](base::WorkspaceId id) {
    if (flights_.ran_within(id.value, kFreshFor)) return false;
    flights_.request(id.value, owner_of(context_, id));
    return true;
  });
}

void Measurer::forget(base::WorkspaceId id) {
  flights_.forget(id.value);
  const std::lock_guard lock(mutex_);
  uncounted_.erase(id);
  put_off_.erase(id);
}

void Measurer::before_stop(state_db::WorkspaceRow row) {
  const auto running = context_.live.running(row.id);
  if (!running) return;
  try_step(row, "base", [&] { follow_base(row, *running, kLastGitDeadline); });
  const auto unpushed = count_unpushed(*running, known_commits(context_, row), kLastGitDeadline);
  try_step(row, "unpushed", [&] { keep(row, {.unpushed = unpushed}); });
}

void Measurer::follow_base(const state_db::WorkspaceRow& row) {
  const auto running = context_.live.running(row.id);
  if (!running) return;
  state_db::WorkspaceRow now = row;
  try_step(row, "base", [&] { follow_base(now, *running, kLastGitDeadline); });
}

void Measurer::measure(base::WorkspaceId id) {
  state_db::WorkspaceRow row;
  row.id = id;
  try_step(row, "all", [&] {
    const auto found = state_db::WorkspaceTable(context_.store).find(id);
    if (!found || found->state != WorkspaceState::ready) return;
    const base::ExecId before = uncounted(id);
    const auto facts = look(*found);
    // Its files may have been archived meanwhile.
    const auto now = state_db::WorkspaceTable(context_.store).find(id);
    if (!now || now->state != WorkspaceState::ready) return;
    const base::ExecId after = uncounted(id);
    keep(*found, facts, before == after ? before : base::ExecId{});
  });
}

base::ExecId Measurer::uncounted(base::WorkspaceId id) {
  if (state_db::ExecTable(context_.store).count_running(id) > 0) return {};
  const std::lock_guard lock(mutex_);
  const auto found = uncounted_.find(id);
  return found == uncounted_.end() ? base::ExecId{} : found->second;
}

void Measurer::follow_base(state_db::WorkspaceRow& row, const LiveSandbox& running,
                           milliseconds deadline) {
  const auto repository = state_db::RepositoryTable(context_.store).get(row.repository);
  if (row.base_ref.empty() || !has_upstream(repository.scope)) return;
  const std::string repo = repo_directory(row.repository);
  const auto news = context_.repos.distance(repo, row.base_commit, row.base_ref);
  if (!news || (news->behind == 0 && row.moved_commit.empty())) return;
  const std::string branch = "refs/remotes/origin/" + after_kind(row.base_ref);
  const auto found =
      common_ancestor(running, context_.repos.resolve(repo, row.base_ref).commit, branch, deadline);
  const std::string& last = state_db::compared_with(row);
  if (!found || *found == last) return;
  // Of a sandbox that lies, too: only a commit of upstream that is newer than the base.
  const auto is_later_than = [&](const std::string& since) {
    return context_.repos.is_later(repo, *found, since, row.base_ref);
  };
  std::string moved = is_later_than(last) ? *found : "";
  if (moved.empty() && !row.moved_commit.empty()) {
    // HEAD may stand on a commit that upstream has taken back since.
    if (common_ancestor(running, last, branch, deadline) == last) return;
    if (is_later_than(row.base_commit)) moved = *found;
  }
  if (moved == row.moved_commit) return;
  state_db::WorkspaceTable(context_.store).set_facts(row.id, {.moved_commit = moved});
  row.moved_commit = std::move(moved);
}

state_db::WorkspaceFacts Measurer::look(state_db::WorkspaceRow row) {
  state_db::WorkspaceFacts facts;
  const auto running = context_.live.running(row.id);
  if (running) try_step(row, "base", [&] { follow_base(row, *running, kGitDeadline); });
  try_step(row, "changes", [&] {
    facts.changes_files = look_at_changes(
        context_, {row.id}, [&](const auto& sources) { return changes_.count(sources[0]).files; });
  });
  // The walk for its seal has already measured the writable layer.
  const bool sealed = !state_db::IntegrityTable(context_.store).get(row.id).seal.empty();
  DiskUse disk(context_);
  try_step(row, "disk", [&] {
    if (!sealed || !state_db::LayerDisk(context_.store).find(row.layer)) {
      const auto usage = measured(context_.storage.layer_path(row.layer));
      disk.keep_writable(row, usage.bytes, usage.inodes);
    }
  });
  try_step(row, "disk", [&] { disk.settle(row.id); });
  if (running)
    facts.unpushed = count_unpushed(*running, known_commits(context_, row), kGitDeadline);
  return facts;
}

void Measurer::try_step(const state_db::WorkspaceRow& row, const char* fact,
                        const std::function<void()>& look) {
  try {
    look();
  } catch (const std::exception& error) {
    base::log(base::LogLevel::warning, "workspace.not_measured",
              {{"ws", row.id}, {"fact", fact}, {"error", error.what()}});
  }
}

void Measurer::keep(const state_db::WorkspaceRow& row, const state_db::WorkspaceFacts& facts,
                    base::ExecId counted) {
  const auto is_news = [](const auto& fact, const auto& known) { return fact && fact != known; };
  const bool news =
      is_news(facts.changes_files, row.changes_files) || is_news(facts.unpushed, row.unpushed);
  const bool counts = counted && facts.changes_files;
  if (!news && !counts) return;
  context_.store.transaction([&] {
    if (news) state_db::WorkspaceTable(context_.store).set_facts(row.id, facts);
    if (counts)
      state_db::ExecTable(context_.store).set_changed_files(counted, *facts.changes_files);
  });
  if (!counts) return;
  const std::lock_guard lock(mutex_);
  const auto found = uncounted_.find(row.id);
  if (found != uncounted_.end() && found->second == counted) uncounted_.erase(found);
}

}  // namespace moorage::workspace
