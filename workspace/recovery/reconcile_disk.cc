// The part of the reconciler (reconcile.h) that compares the disk and the sandboxes under our name
// with the rows (seen.h).
#include <unistd.h>

#include <set>

#include "base/os/files.h"
#include "layers/upload_note.h"
#include "repo_cache/base_tree.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store.h"
#include "workspace/context/try_step.h"
#include "workspace/recovery/reconcile.h"
#include "workspace/recovery/seen.h"

namespace moorage::workspace {
namespace {

using base::LogLevel;
using state_db::RepositoryState;

// Removes it through the workspace's mount, because an overlay may be mounted there.
void remove_upload(Files& files, const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return;
  try {
    const std::string path = text.substr(slash);
    const auto lease = files.open(daemon_for(0), text.substr(0, slash), Right::write);
    if (lease.files.stat(path).type != layers::FileType::file) return;
    lease.files.remove(path, false);
    base::log(base::LogLevel::info, "upload.swept", {{"path", text}});
  } catch (const Error& error) {
    // The transfer had just renamed the file, or the workspace is gone.
    if (error.code() != Code::not_found) throw;
  }
}

}  // namespace

void Reconciler::settle_repositories() {
  for (const auto& row : state_db::RepositoryTable(context_.store).list()) {
    try_step("reconcile.repository", row.id.str(), [&] { settle_repository(row); });
  }
}

void Reconciler::settle_repository(const state_db::RepositoryRow& row) {
  const bool stepping =
      row.state == RepositoryState::cloning || row.state == RepositoryState::fetching;
  const state_db::Repair mend = decide(row.state, see(context_, repositories_, row));
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
    const auto seen = see_base_trees(context_, row.id);
    for (const auto& commit : seen.unlisted) {
      try_step("reconcile.base_tree", repo + "/" + commit,
               [&] { settle_base_tree(row.id, commit); });
    }
    repositories_.settle_forms(row.id, [&] { return mounted_commits(row.id); });
    for (const auto& name : seen.leftovers) {
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
  const auto seen = see_sandboxes(context_);
  for (const auto& [name, backend] : seen.unlisted) {
    if (decide(state_db::Orphan::sandbox) != state_db::Repair::undo) continue;
    base::log(LogLevel::warning, "reconcile.stranger", {base::Field("name", name)});
    round_.begin({.subject = name}, "reconcile.stranger",
                 [on = backend, stranger = name] { on->destroy(stranger); });
  }
  for (const auto& [name, has_id] : seen.directories) {
    if (!has_id || decide(state_db::Orphan::sandbox_directory) != state_db::Repair::undo) continue;
    const std::string path = context_.options.sandbox_directory(name);
    base::log(LogLevel::warning, "reconcile.unknown_directory", {{"path", path}});
    try_step("reconcile.unknown_directory", name, [&] { base::remove_tree(path); });
  }
}

// Call it once the sandboxes are adopted.
void Reconciler::sweep_uploads() {
  for (const auto& note : upload_leftovers(context_)) {
    try {
      remove_upload(files_, layers::upload_note_text(note));
      base::check(unlink(note.c_str()), "remove " + note);
    } catch (const Error& error) {
      if (error.code() == Code::not_found) continue;  // its transfer has just ended
      base::log(base::LogLevel::warning, "upload.not_swept",
                {{"note", note}, {"error", error.message()}});
    }
  }
}

}  // namespace moorage::workspace
