#include "workspace/verbs/views.h"

#include <algorithm>
#include <map>

#include "backends/registry.h"
#include "base/error.h"
#include "repo_cache/repo_cache.h"
#include "state_db/reads.h"
#include "state_db/store.h"
#include "state_db/tables/archives.h"
#include "state_db/tables/integrity.h"
#include "workspace/access/keyed_request.h"
#include "workspace/archive/store.h"
#include "workspace/changes/stable_read.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/repositories/repositories.h"
#include "workspace/sandbox/given_up.h"
#include "workspace/sandbox/spending.h"

namespace moorage::workspace {
namespace {

using state_db::WorkspaceState;

constexpr uint64_t kMostBase = 64 << 20;  // of one file, in memory

// nullopt: unknown.
std::optional<repo_cache::Distance> distance(const repo_cache::RepoCache& repos,
                                             const WorkspaceView& view) {
  const auto& row = view.row;
  if (row.base_ref.empty() || !has_upstream(view.repo.scope)) return std::nullopt;
  try {
    const std::string& stands_at =
        row.moved_commit.empty() ? state_db::began_at(row) : row.moved_commit;
    return repos.distance(repo_directory(row.repository), stands_at, row.base_ref);
  } catch (const Error&) {
    // The mirror is being rebuilt, so the number is unknown for now.
  }
  return std::nullopt;
}

bool is_base(const ChangeSource& now, DiffBase base) {
  return base == DiffBase::work || now.head_commit.empty();
}

ChangeSource at_head(const ChangeSource& now) {
  ChangeSource head;
  head.repo_dir = now.repo_dir;
  head.base_commit = now.head_commit;
  return head;
}

RestView rest_of(const WorkspaceView& view, Context& context) {
  RestView shown;
  const base::Clock& clock = context.store.clock();
  const int64_t now = clock.boot_ms();
  if (view.doing) {
    shown.busy_with = kBusyWithExec + view.doing->id.str();
  } else if (const auto seen = context.live.rest(view.row.id)) {
    const bool ended = seen->busy_with.starts_with(kBusyWithExec);  // since that check
    if (!ended) shown.busy_with = seen->busy_with;
    if (seen->busy_with.empty()) {
      const int64_t since_ms = std::clamp<int64_t>(now - seen->boot_ms, 0, kMostIdlePause_ms);
      shown.idle_ms = seen->idle_ms + since_ms;
    }
  }
  const int64_t idle_stop_ms = view.policy.idle_stop_s * 1000;
  if (shown.busy_with.empty() && idle_stop_ms > 0)
    shown.idle_stop_in_ms = std::max<int64_t>(0, idle_stop_ms - shown.idle_ms);
  if (view.policy.max_lifetime_s > 0 && view.sandbox->init.pid > 0) {
    shown.lifetime_left_ms =
        std::max<int64_t>(0, view.policy.max_lifetime_s * 1000 - age_ms(view.sandbox->init, clock));
  }
  return shown;
}

WorkspaceView outline(Context& context, state_db::WorkspaceRow row, state_db::RepositoryRow repo) {
  WorkspaceView view;
  view.row = std::move(row);
  view.repo = with_last_check(context, std::move(repo));
  view.origin = Repositories::origin_of(view.repo);
  const auto id = view.row.id;
  view.integrity = state_db::IntegrityTable(context.store).get(id);
  view.sandbox = state_db::SandboxTable(context.store).live(id);
  if (view.sandbox) {
    auto running = state_db::ExecTable(context.store).running(view.sandbox->id);
    if (!running.empty()) view.doing = std::move(running.back());
  } else {
    view.ended_sandbox = state_db::SandboxTable(context.store).last_ended(id);
  }
  return view;
}

}  // namespace

// Each row is found by index, so the cost of a page depends only on its length. Its rows are from
// one moment, and reading them does not wait for commits.
WorkspacePage Views::list(const Caller& caller, const PageRequest& wanted) {
  state_db::WorkspaceQuery query;
  query.seen_by = caller.viewer();
  query.with_deleted = wanted.with_deleted;
  // Failed ones are reported by their create and by the events.
  query.with_failed = wanted.with_deleted;
  query.after = wanted.after;
  query.limit = wanted.limit + 1;
  WorkspacePage page;
  {
    const state_db::ReadTransaction moment(context_.store);
    state_db::WorkspaceTable table(context_.store);
    auto rows = table.list(query);
    page.more = rows.size() > wanted.limit;
    if (page.more) rows.pop_back();
    page.used_bytes = table.disk({.seen_by = query.seen_by}).bytes;
    std::map<base::RepoId, state_db::RepositoryRow> repos;
    for (auto& row : rows) {
      const auto [repo, is_new] = repos.try_emplace(row.repository);
      if (is_new) repo->second = state_db::RepositoryTable(context_.store).get(row.repository);
      page.views.push_back(outline(context_, std::move(row), repo->second));
    }
  }
  for (WorkspaceView& view : page.views) complete(view);
  return page;
}

void Views::complete(WorkspaceView& view) {
  view.lease = leases_.held(view.row.id);
  view.upstream = distance(context_.repos, view);
  view.disk_quota = context_.storage.quota().name();
  view.off_host = replica_.view(view.row.id, view.integrity.seal);
  view.policy = effective_policy(view.row.policy, context_.options);
  if (view.sandbox && view.sandbox->state == state_db::SandboxState::running)
    view.rest = rest_of(view, context_);
  if (view.doing) {
    view.blocked = sightings_.blocked(view.row.id);
    if (const auto progress = watcher_.progress(view.doing->id))
      view.last_output_ms = progress->last_output_ms;
  }
}

WorkspaceView Views::view(const state_db::WorkspaceRow& row) {
  auto view = outline(context_, row, state_db::RepositoryTable(context_.store).get(row.repository));
  complete(view);
  view.archive = state_db::ArchiveTable(context_.store).find(row.id);
  if (view.archive) view.archive_file = ArchiveStore(context_).path(*view.archive);
  view.base_tree = state_db::BaseTreeTable(context_.store).find(row.repository, row.base_commit);
  if (const auto running = context_.live.running(row.id)) {
    view.sandbox_status = running->backend->inspect(running->name);
  }
  view.remote = remote_.view(row.id);
  if (view.remote) {
    view.remote->user_ms = spent_ms(context_, row.owner_uid);
    view.remote->user_limit_h = context_.options.remote_hours_a_day;
  }
  return view;
}

// The state as its verb left it: a repeat of that verb, whose answer was lost when the daemon died,
// may come after the workspace was deleted.
WorkspaceView Views::look(base::WorkspaceId id) {
  auto row = state_db::WorkspaceTable(context_.store).get(id);
  if (row.state == WorkspaceState::ready) measurer_.refresh_later(id, {});
  if (row.state == WorkspaceState::deleting || row.state == WorkspaceState::deleted) {
    const auto archive = state_db::ArchiveTable(context_.store).find(id);
    row.state = archive && archive->whole ? WorkspaceState::archived : WorkspaceState::ready;
    row.reason.clear();
    row.deleted_wall_ms.reset();
  }
  return view(row);
}

WorkspaceView Views::made_before(const Caller& caller, base::WorkspaceId id,
                                 const std::string& doing) {
  const auto row = state_db::WorkspaceTable(context_.store).get(id);
  if (row.state == WorkspaceState::creating)
    refuse_unsettled(caller, row.name + " is being " + doing);
  return look(id);
}

WorkspaceView Views::show(const Caller& caller, const std::string& name) {
  const auto row = find_workspace(context_.store, caller, name, Right::read);
  if (row.state == WorkspaceState::ready) {
    try {
      integrity_.look_for_loss(row);
      measurer_.refresh(row.id);
    } catch (const Error& error) {
      if (error.code() != Code::corrupted) throw;  // the row now records the loss and shows it
    }
  }
  auto shown = view(state_db::WorkspaceTable(context_.store).get(row.id));
  shown.notice = left_notice(context_, row.id);
  return shown;
}

void Views::measure(const state_db::WorkspaceRow& row, base::ExecId ended) {
  if (row.state == WorkspaceState::ready) measurer_.refresh(row.id, ended);
}

void Views::follow_base(const state_db::WorkspaceRow& row) {
  if (row.state == WorkspaceState::ready) measurer_.follow_base(row);
}

// The workspace, with its files here as they are on the other machine if it runs on one.
base::WorkspaceId Views::current(const Caller& caller, const std::string& name) {
  const auto row = find_workspace(context_.store, caller, name, Right::read);
  add_notice(caller, remote_.refresh(row.id));
  follow_base(row);
  return row.id;
}

ChangeList Views::status(const Caller& caller, const std::string& name) {
  return look_at_changes(context_, {current(caller, name)},
                         [&](const auto& sources) { return changes_.status(sources[0]); });
}

std::string Views::base_file(const Caller& caller, const std::string& name,
                             const std::string& path) {
  const auto row = find_workspace(context_.store, caller, name, Right::read);
  const std::string repo = repo_directory(row.repository);
  if (!row.raw_commit.empty())
    return repo_cache::CommitTree(context_.repos, repo, row.raw_commit).read_blob(path, kMostBase);
  return repo_cache::CommitTree(context_.repos, repo, state_db::compared_with(row))
      .checked_out(path, kMostBase);
}

Patch Views::patch(const Caller& caller, const std::string& name, DiffBase base,
                   const DiffScope& scope) {
  return look_at_changes(context_, {current(caller, name)}, [&](const auto& sources) {
    const auto& now = sources[0];
    return is_base(now, base) ? changes_.patch(now, scope)
                              : changes_.patch(at_head(now), now, scope);
  });
}

std::vector<DiffStat> Views::diff_stat(const Caller& caller, const std::string& name, DiffBase base,
                                       const DiffScope& scope) {
  return look_at_changes(context_, {current(caller, name)}, [&](const auto& sources) {
    const auto& now = sources[0];
    return is_base(now, base) ? changes_.stat(now, scope) : changes_.stat(at_head(now), now, scope);
  });
}

}  // namespace moorage::workspace
