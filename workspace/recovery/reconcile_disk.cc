// The part of the reconciler (reconcile.h) that compares the disk and the sandboxes under our name
// with the rows. It always reads the disk first and the rows second. A row is written before its
// thing and removed after it, so a thing without a row is an orphan, even while verbs run.
#include <set>

#include "backends/registry.h"
#include "base/os/files.h"
#include "repo_cache/base_tree.h"
#include "repo_cache/repo_cache.h"
#include "state_db/recovery_table.h"
#include "state_db/store.h"
#include "workspace/context/try_step.h"
#include "workspace/recovery/reconcile.h"

namespace moorage::workspace {
namespace {

using base::LogLevel;
using state_db::RepositoryState;

}  // namespace

void Reconciler::settle_repositories() {
  for (const auto& row : state_db::RepositoryTable(context_.store).list()) {
    try_step("reconcile.repository", row.id.str(), [&] { settle_repository(row); });
  }
}

void Reconciler::settle_repository(const state_db::RepositoryRow& row) {
  const std::string name = repo_directory(row.id);
  const bool stepping =
      row.state == RepositoryState::cloning || row.state == RepositoryState::fetching;
  state_db::RepositorySeen seen = context_.repos.exists(name) ? state_db::RepositorySeen::mirror
                                                              : state_db::RepositorySeen::no_mirror;
  if (row.state == RepositoryState::evicted && base::path_exists(context_.repos.directory(name)))
    seen = state_db::RepositorySeen::mirror;
  if (repositories_.at_work(row.id)) seen = state_db::RepositorySeen::at_work;
  const state_db::Repair mend = decide(row.state, seen);
  if (stepping && (mend == state_db::Repair::finish || mend == state_db::Repair::undo)) {
    context_.store.transaction([&] {
      // A verb marks the repository as at work before it writes the state.
      const bool left = !repositories_.at_work(row.id) &&
                        state_db::RepositoryTable(context_.store).get(row.id).state == row.state;
      if (!left) return;
      context_.store.move(
          row.id, row.state,
          mend == state_db::Repair::finish ? RepositoryState::ready : RepositoryState::broken,
          "interrupted; the next use resumes it");
    });
  } else if (mend == state_db::Repair::undo) {
    remove_evicted(context_, row.id);
  }
}

// Interrupted checkouts, and damaged ones that no mount stands on any more.
void Reconciler::settle_base_trees() {
  for (const auto& row : state_db::RepositoryTable(context_.store).list()) {
    if (row.state == RepositoryState::evicted) continue;
    const std::string repo = repo_directory(row.id);
    const auto trees = context_.base_trees.list(repo);
    const auto leftovers = context_.base_trees.leftovers(repo);
    for (const auto& commit : trees) {
      try_step("reconcile.base_tree", repo + "/" + commit,
               [&] { settle_base_tree(row.id, commit); });
    }
    repositories_.settle_forms(row.id, [&] { return mounted_commits(row.id); });
    for (const auto& name : leftovers) {
      if (decide(state_db::Orphan::base_tree_leftover) != state_db::Repair::undo) continue;
      if (repo_cache::BaseTrees::is_kept(name) && has_dependents(row.id)) continue;
      try {
        context_.base_trees.remove_leftover(repo, name);
        base::log(LogLevel::warning, "reconcile.base_tree_leftover",
                  {{"repo", repo}, {"name", name}});
      } catch (const base::Error& error) {
        if (error.code() != base::Code::conflict) throw;  // still being written
      }
    }
  }
}

void Reconciler::settle_base_tree(base::RepoId repository, const std::string& commit) {
  const auto guard = lock_if_free(context_, repository.str() + "." + commit);
  if (!guard || state_db::BaseTreeTable(context_.store).find(repository, commit)) return;
  if (decide(state_db::BaseTreeRowState::none, state_db::BaseTreeSeen::whole) !=
      state_db::Repair::undo)
    return;
  for (const auto& tree : state_db::BaseTreeTable(context_.store).list(repository)) {
    if (tree.parent == commit) return;  // its next use adds its row
  }
  base::log(LogLevel::warning, "reconcile.base_tree", {{"repo", repository}, {"commit", commit}});
  context_.base_trees.remove(repo_directory(repository), commit);
}

// Base commits of the workspaces with mounts, including mounts of sandboxes of an earlier daemon.
std::set<std::string> Reconciler::mounted_commits(base::RepoId repository) {
  std::set<base::WorkspaceId> mounted = context_.live.mounted();
  for (const auto& [workspace, sandbox] : state_db::SandboxTable(context_.store).all_live())
    mounted.insert(workspace);
  std::set<std::string> commits;
  for (const auto workspace : mounted) {
    const auto row = state_db::WorkspaceTable(context_.store).get(workspace);
    if (row.repository == repository) commits.insert(row.base_commit);
  }
  return commits;
}

// By a mount, or by a verb about to mount: its row exists first.
bool Reconciler::has_dependents(base::RepoId repository) {
  return !context_.base_trees.in_use(repo_directory(repository)).empty() ||
         !mounted_commits(repository).empty();
}

// Sandboxes that carry our store's name but have no row, or one that says they are gone: an older
// state of the database forgot them, or someone outside Moorage restored them.
void Reconciler::remove_strangers() {
  std::vector<std::pair<backends::Backend*, std::string>> found;
  for (auto* backend : context_.backends.all()) {
    if (!backend->capabilities().usable) continue;
    for (const auto& name : backend->list()) found.emplace_back(backend, name);
  }
  const std::string directory = context_.options.store + "/sandboxes";
  const auto directories = base::list_directory_if_exists(directory);
  std::set<std::string> names;
  std::set<std::string> sandboxes;
  for (const auto& row : state_db::SandboxTable(context_.store).not_destroyed()) {
    names.insert(row.name);
    sandboxes.insert(row.id.str());
  }
  for (const auto& [backend, name] : found) {
    if (names.contains(name) || decide(state_db::Orphan::sandbox) != state_db::Repair::undo)
      continue;
    base::log(LogLevel::warning, "reconcile.stranger", {base::Field("name", name)});
    round_.begin({.subject = name}, "reconcile.stranger",
                 [on = backend, stranger = name] { on->destroy(stranger); });
  }
  for (const auto& name : directories) {
    if (!base::SandboxId::parse(name) || sandboxes.contains(name)) continue;
    if (decide(state_db::Orphan::sandbox_directory) != state_db::Repair::undo) continue;
    base::log(LogLevel::warning, "reconcile.unknown_directory", {{"path", directory + "/" + name}});
    try_step("reconcile.unknown_directory", name,
             [&] { base::remove_tree(directory + "/" + name); });
  }
}

}  // namespace moorage::workspace
