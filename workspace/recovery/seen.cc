#include "workspace/recovery/seen.h"

#include <algorithm>
#include <set>

#include "backends/registry.h"
#include "base/error.h"
#include "base/os/files.h"
#include "base/os/process.h"
#include "layers/upload_note.h"
#include "repo_cache/base_tree.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store.h"
#include "state_db/tables/layers.h"
#include "workspace/access/access.h"
#include "workspace/chain/initial_files.h"

namespace moorage::workspace {
namespace {

using state_db::RepositorySeen;
using state_db::WorkspaceState;

// `without_row` chooses from the ids on the disk; it runs after those were read.
template <typename Id, typename WithoutRow>
std::vector<Unlisted> unlisted_in(const std::string& directory, const WithoutRow& without_row) {
  std::vector<Unlisted> all;
  std::vector<Id> ids;
  for (const auto& name : base::list_directory_if_exists(directory)) {
    const auto id = Id::parse(name);
    all.push_back({name, id.has_value()});
    if (id) ids.push_back(*id);
  }
  std::set<std::string> unlisted;
  for (const Id id : without_row(ids)) unlisted.insert(id.str());
  std::erase_if(all,
                [&](const auto& each) { return each.has_id && !unlisted.contains(each.name); });
  return all;
}

// An archived or deleted workspace has no mount: its note waits for its return.
state_db::UploadSeen see_upload(Context& context, const std::string& note) {
  if (layers::upload_goes_on(note)) return state_db::UploadSeen::at_work;
  try {
    const std::string text = layers::upload_note_text(note);
    const auto row = find_with_deleted(context.store, daemon_for(0), text.substr(0, text.find('/')),
                                       Right::read);
    return row.state == state_db::WorkspaceState::ready ? state_db::UploadSeen::file
                                                        : state_db::UploadSeen::no_workspace;
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
    return state_db::UploadSeen::no_file;  // the workspace was purged
  }
}

}  // namespace

RepositorySeen see(Context& context, Repositories& repositories,
                   const state_db::RepositoryRow& row) {
  const std::string name = repo_directory(row.id);
  const bool there = row.state == state_db::RepositoryState::evicted
                         ? base::path_exists(context.repos.directory(name))
                         : context.repos.exists(name);
  // After the disk: a verb marks its work before it changes anything there.
  if (repositories.at_work(row.id)) return RepositorySeen::at_work;
  return there ? RepositorySeen::mirror : RepositorySeen::no_mirror;
}

state_db::LayerSeen see(Context& context, const state_db::WorkspaceRow& row) {
  if (!row.layer || !base::path_exists(context.storage.layer_path(row.layer)))
    return state_db::LayerSeen::missing;
  // A fork that is not ready is one of a set that was never reported; none of them is created.
  const bool cut_fork = row.state == WorkspaceState::creating && row.forked_from;
  return !cut_fork && initial_files_complete(context, row) ? state_db::LayerSeen::complete
                                                           : state_db::LayerSeen::partial;
}

state_db::SandboxSeen see(const state_db::SandboxRow& row) {
  return row.boot_id == base::boot_id() && base::process_alive(row.init)
             ? state_db::SandboxSeen::alive
             : state_db::SandboxSeen::dead;
}

std::vector<state_db::WorkspaceRow> unsettled_workspaces(Context& context) {
  std::vector<state_db::WorkspaceRow> found;
  for (const auto state :
       {WorkspaceState::creating, WorkspaceState::deleting, WorkspaceState::archiving,
        WorkspaceState::unarchiving, WorkspaceState::failed}) {
    state_db::WorkspaceQuery query;
    query.state = state;
    for (auto& row : state_db::WorkspaceTable(context.store).list(query))
      found.push_back(std::move(row));
  }
  std::sort(found.begin(), found.end(),
            [](const auto& one, const auto& other) { return one.id < other.id; });
  return found;
}

std::vector<Unlisted> unlisted_layers(Context& context) {
  return unlisted_in<base::LayerId>(context.options.store + "/layers", [&](const auto& ids) {
    return state_db::LayerTable(context.store).unknown(ids);
  });
}

std::vector<Unlisted> unlisted_workspaces(Context& context) {
  return unlisted_in<base::WorkspaceId>(
      context.options.store + "/workspaces",
      [&](const auto& ids) { return state_db::WorkspaceTable(context.store).unknown(ids); });
}

SandboxesSeen see_sandboxes(Context& context) {
  SandboxesSeen seen;
  for (auto* backend : context.backends.all()) {
    if (!backend->capabilities().usable) continue;
    for (const auto& name : backend->list()) seen.listed.emplace(name, backend);
  }
  seen.unlisted = seen.listed;
  seen.directories = unlisted_in<base::SandboxId>(
      context.options.store + "/sandboxes", [&](const std::vector<base::SandboxId>& ids) {
        std::set<base::SandboxId> left(ids.begin(), ids.end());
        seen.rows = state_db::SandboxTable(context.store).not_destroyed();
        for (const auto& row : seen.rows) {
          seen.unlisted.erase(row.name);
          left.erase(row.id);
        }
        return left;
      });
  return seen;
}

BaseTreesSeen see_base_trees(Context& context, base::RepoId repository) {
  const std::string repo = repo_directory(repository);
  BaseTreesSeen seen;
  const auto trees = context.base_trees.list(repo);
  seen.unlisted = {trees.begin(), trees.end()};
  seen.leftovers = context.base_trees.leftovers(repo);
  seen.rows = state_db::BaseTreeTable(context.store).list(repository);
  for (const auto& row : seen.rows) seen.unlisted.erase(row.commit);
  return seen;
}

std::vector<std::string> upload_leftovers(Context& context) {
  const std::string directory = context.options.uploads();
  std::vector<std::string> notes;
  for (const auto& name : base::list_directory_if_exists(directory)) {
    const std::string note = directory + "/" + name;
    if (decide(see_upload(context, note)) == state_db::Repair::undo) notes.push_back(note);
  }
  return notes;
}

}  // namespace moorage::workspace
