// Verbs on repositories: who may see, fetch and remove one, and the upload of a local checkout.
#pragma once

#include <string>
#include <vector>

#include "base/os/fd.h"
#include "workspace/access/access.h"
#include "workspace/repositories/repositories.h"

namespace moorage::workspace {

// A checkout on the client's side.
struct ImportSource {
  std::string label;   // its path there, opaque here
  std::string origin;  // of its remote, without credentials; empty: none
};

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

  // A local checkout, streamed by the CLI as a git bundle. It is never shared between users.
  std::vector<std::string> import_tips(const Caller& caller, const std::string& label);
  // An unnamed file in the store's quarantine, to be filled with the bundle. invalid_argument: the
  // source.
  base::Fd begin_import(const ImportSource& source);
  ImportedWork finish_import(const Caller& caller, const ImportSource& source, base::Fd bundle);

 private:
  Context& context_;
  Repositories& repositories_;
};

}  // namespace moorage::workspace
