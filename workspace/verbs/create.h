// Creates a workspace. Two synchronous writes: the intent (workspace, layer, labels) and `ready`;
// everything between follows from the row and is repeated, or undone, after a crash.
#pragma once

#include <optional>
#include <utility>

#include "workspace/access/admission.h"
#include "workspace/repositories/repositories.h"
#include "workspace/verbs/views.h"

namespace moorage::workspace {

class Create {
 public:
  Create(Context& context, Repositories& repositories, Admission& admission, Views& views)
      : context_(context), repositories_(repositories), admission_(admission), views_(views) {}

  WorkspaceView create(const Caller& caller, const CreateRequest& request,
                       const Progress& progress);

 private:
  state_db::RepositoryRow repository_for(const Caller& caller, const CreateRequest& request,
                                         const Progress& progress);
  repo_cache::ResolvedRef resolve(const Caller& caller, const CreateRequest& request,
                                  base::RepoId repo, const Progress& progress);
  void stand_on_work(const ImportedWork& import, const std::string& repo_dir,
                     state_db::NewWorkspace& workspace) const;
  void write_raw_files(const state_db::WorkspaceRow& row) const;
  using Made = std::pair<state_db::WorkspaceTable::Created, base::KeyedMutex::Guard>;
  Made stand_on_base(state_db::NewWorkspace& workspace, const CreateRequest& request,
                     const state_db::RepositoryRow& repo, const Progress& progress);
  std::optional<Made> insert(state_db::NewWorkspace& workspace, const CreateRequest& request,
                             const state_db::RepositoryRow& repo);

  Context& context_;
  Repositories& repositories_;
  Admission& admission_;
  Views& views_;
};

}  // namespace moorage::workspace
