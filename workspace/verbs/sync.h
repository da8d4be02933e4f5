// Brings upstream's newer branches and tags into a workspace: fetches the repository, then moves
// the references under refs/remotes/origin inside, by git in the sandbox, which sees the mirror's
// objects. Branches, HEAD and files do not change: the agent rebases or merges.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "workspace/access/leases.h"
#include "workspace/context/context.h"
#include "workspace/repositories/repositories.h"
#include "workspace/verbs/requests.h"
#include "workspace/verbs/start_stop.h"
#include "workspace/verbs/views.h"

namespace moorage::workspace {

// Object ids by full name. Of "<id> <name>" lines; others, and names over 1 KiB, are skipped.
using References = std::map<std::string, std::string, std::less<>>;
References parse_references(std::string_view lines);

// How the references inside become upstream's: commands of git update-ref --stdin, each with its
// line end. Removals come first and alone, because a name may take the place of a directory.
struct ReferenceChanges {
  std::vector<std::string> removals;
  std::vector<std::string> updates;  // of branches
  std::vector<std::string> tags;     // new ones
  std::vector<std::string> objects;  // that the updates need
  std::vector<std::string> texts;    // the first ones for people: "origin/main 1a2b3c4 -> 5d6e7f8"
  size_t all = 0;                    // changes
  size_t kept_tags = 0;              // differ from upstream's, or have no place: like git fetch
};
// Only names under refs/remotes/origin (but its HEAD) and refs/tags count. `first`: its text leads.
ReferenceChanges changes_between(const References& inside, const References& upstream,
                                 const std::string& first);

class Sync {
 public:
  Sync(Context& context, Repositories& repositories, Leases& leases, StartStop& start_stop,
       Views& views)
      : context_(context),
        repositories_(repositories),
        leases_(leases),
        start_stop_(start_stop),
        views_(views) {}

  // Starts the sandbox if needed. The view's notice says what came. unsupported: no upstream.
  // permission_denied: a private repository of another user.
  // unavailable: upstream does not answer. conflict: git inside refuses, or a busy sandbox on
  // another machine would have to start again to get the objects.
  WorkspaceView sync(const Caller& caller, const std::string& name, const Progress& progress);
  WorkspaceView resume(const std::string& subject);  // one whose daemon died

 private:
  ReferenceChanges compare(const state_db::WorkspaceRow& row, const LiveSandbox& running) const;
  LiveSandboxPtr with_objects(const state_db::WorkspaceRow& row, LiveSandboxPtr running,
                              const std::vector<std::string>& objects, LiveSandboxes::Use& use);

  Context& context_;
  Repositories& repositories_;
  Leases& leases_;
  StartStop& start_stop_;
  Views& views_;
};

}  // namespace moorage::workspace
