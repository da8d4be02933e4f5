// What the reconciler (reconcile.h) and doctor (doctor.h) both see of disk, engines and rows;
// state_db/recovery_table.h decides from it. The disk and the engines are always read first and the
// rows second. A row is written before its thing and removed after it, so a thing without a row is
// an orphan, even while verbs run.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "state_db/recovery_table.h"
#include "state_db/tables/sandboxes.h"
#include "workspace/repositories/repositories.h"

namespace moorage::workspace {

state_db::RepositorySeen see(Context& context, Repositories& repositories,
                             const state_db::RepositoryRow& row);
// These two do not know whether a verb is at work on it.
state_db::LayerSeen see(Context& context, const state_db::WorkspaceRow& row);
state_db::SandboxSeen see(const state_db::SandboxRow& row);

// Rows between two resting states, and failed creates, by id.
std::vector<state_db::WorkspaceRow> unsettled_workspaces(Context& context);

// A directory of the store without a row.
struct Unlisted {
  std::string name;
  bool has_id = false;  // otherwise Moorage did not make it
};
std::vector<Unlisted> unlisted_layers(Context& context);
std::vector<Unlisted> unlisted_workspaces(Context& context);

struct SandboxesSeen {
  std::map<std::string, backends::Backend*> listed;    // by the usable engines, under our name
  std::map<std::string, backends::Backend*> unlisted;  // those without a row
  std::vector<state_db::SandboxRow> rows;              // not destroyed
  std::vector<Unlisted> directories;
};
SandboxesSeen see_sandboxes(Context& context);

// A base tree gets its row last: one without a row may still be being written, under its lock.
struct BaseTreesSeen {
  std::vector<state_db::BaseTreeRow> rows;
  std::set<std::string> unlisted;  // commits on the disk without a row
  std::vector<std::string> leftovers;
};
BaseTreesSeen see_base_trees(Context& context, base::RepoId repository);

// Notes (layers/upload_note.h) of uploads of an earlier daemon that no longer go on and whose
// workspace has its files here. The notes of an archived or deleted workspace wait until it is
// back.
std::vector<std::string> upload_leftovers(Context& context);

}  // namespace moorage::workspace
