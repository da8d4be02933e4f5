// Verbs on repositories: who may see, fetch and remove one, and the upload of a local checkout.
#pragma once

#include <string>
#include <vector>

#include "base/os/fd.h"
#include "workspace/access/access.h"
#include "workspace/repositories/repositories.h"

namespace moorage::workspace {

class RepositoryVerbs {
 public:
  RepositoryVerbs(Context& context, Repositories& repositories)
      : context_(context), repositories_(repositories) {}

  state_db::RepositoryRow add(const Caller& caller, const std::string& url,
                              const Progress& progress);
  state_db::RepositoryRow fetch(const Caller& caller, base::RepoId id, const Progress& progress);
  std::vector<state_db::RepositoryRow> list(const Caller& caller);
  state_db::RepositoryRow get(const Caller& caller, base::RepoId id);
  void remove(const Caller& caller, base::RepoId id);
  std::string tip(base::RepoId id);  // commit of the default branch, or empty

  // A local checkout, streamed by the CLI as a git bundle. `label` is its path on the client,
  // opaque here. It is never shared between users.
  std::vector<std::string> import_tips(const Caller& caller, const std::string& label);
  // An unnamed file in the store's quarantine, to be filled with the bundle.
  base::Fd begin_import();
  ImportedWork finish_import(const Caller& caller, const std::string& label, base::Fd bundle);

 private:
  Context& context_;
  Repositories& repositories_;
};

}  // namespace moorage::workspace
