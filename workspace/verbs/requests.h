// Requests and views of the verbs: plain data, as in the API. requests.cc validates them before
// anything is written.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/git_identity.h"
#include "base/ids.h"
#include "repo_cache/results.h"
#include "state_db/tables/archives.h"
#include "state_db/tables/execs.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/repositories.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/workspaces.h"
#include "workspace/access/leases.h"
#include "workspace/access/policy.h"
#include "workspace/context/checks.h"
#include "workspace/context/context.h"
#include "workspace/network/blocked.h"
#include "workspace/remote/remote_copy.h"
#include "workspace/replica/replica.h"
#include "workspace/repositories/repositories.h"

namespace moorage::workspace {

struct CreateRequest {
  std::string name;      // empty: derived from the repository's name
  std::string repo_url;  // or:
  std::optional<ImportedWork> import;
  std::string ref;     // branch, tag or commit; empty: upstream's default branch
  std::string branch;  // the agent's branch; empty: moorage/NAME
  std::map<std::string, std::string> labels;
  PolicyChange policy;
  std::string backend;               // empty: the configured default
  std::string image;                 // empty: "host"
  std::string runtime;               // of the backend's engine; empty: the usual one
  bool disposable = false;           // deleted when its last exec ends
  std::optional<uint32_t> team_gid;  // a group whose members may use it, too
  std::string idempotency_key;       // one workspace for (owner, key); empty: none
};

// A new name and labels of an existing workspace.
struct Naming {
  std::optional<std::string> name;
  std::map<std::string, std::optional<std::string>> labels;  // unset: removed; others stay

  bool empty() const { return !name && labels.empty(); }
};

// When and why the running sandbox of a workspace will be stopped.
struct RestView {
  std::string busy_with;  // "exec ex_3"; empty: idle
  int64_t idle_ms = 0;
  std::optional<int64_t> idle_stop_in_ms;   // unset: busy, or never stopped when idle
  std::optional<int64_t> lifetime_left_ms;  // unset: no limit
};

struct WorkspaceView {
  state_db::WorkspaceRow row;
  state_db::RepositoryRow repo;
  std::string origin;  // the URL of origin in its git; empty: none
  state_db::IntegrityRow integrity;
  std::optional<state_db::SandboxRow> sandbox;            // the live one
  std::optional<state_db::SandboxRow> ended_sandbox;      // the last one, while none is live
  std::optional<backends::SandboxStatus> sandbox_status;  // detail only
  std::string disk_quota;                                 // what enforces its disk limit
  std::optional<state_db::ExecRow> doing;                 // newest running exec
  std::optional<Blocked> blocked;                         // a running exec, by its network
  std::optional<LeaseView> lease;                         // while held
  int64_t last_output_ms = 0;                      // wall time of doing's last output; 0: none
  std::optional<repo_cache::Distance> upstream;    // of its base from upstream's ref
  std::optional<state_db::ArchiveRow> archive;     // detail only: its place, if archived
  std::string archive_file;                        // its path
  std::optional<state_db::BaseTreeRow> base_tree;  // detail only: submodules, LFS files
  state_db::WorkspacePolicy policy;                // the effective one
  std::optional<RestView> rest;                    // of a running sandbox
  std::optional<OffHostView> off_host;             // if a replica is configured
  std::optional<RemoteView> remote;                // detail only: it runs on another machine
  std::string notice;                              // a note for the caller about its request
  std::vector<base::ExecId> ended;                 // commands that this request ended
};

struct PageRequest {
  bool with_deleted = false;
  base::WorkspaceId after{};  // may be gone by now
  size_t limit = 1000;
};

struct WorkspacePage {
  std::vector<WorkspaceView> views;  // by id
  bool more = false;                 // there are more after the last one
  uint64_t used_bytes = 0;           // total visible to the caller, same on every page
};

// What a verb that stops a sandbox does with running commands. With neither, it is refused with
// their names.
struct BusyRule {
  bool force = false;                 // end them; each record says who did
  std::chrono::milliseconds wait{0};  // for their end, from the request on
};

struct StopRequest {
  bool run_hook = true;
  BusyRule busy{};
};

struct ExecRequest {
  std::vector<std::string> argv;                   // at least one; no NUL bytes
  std::map<std::string, std::string> environment;  // added to the built one
  std::string directory = "/workspace";
  std::string user = "user";                              // or "root"
  std::optional<std::pair<uint32_t, uint32_t>> terminal;  // columns, rows
  bool input = false;
  bool merged = false;                      // both output streams by one pipe; not with a terminal
  int64_t timeout_ms = 0;                   // 0: the configured default
  bool free_space = false;                  // removes files: allowed on a nearly full disk
  std::optional<base::GitIdentity> author;  // of its commits; none: as this host knows the caller
  bool sync = false;                        // make files durable before reporting the end
  std::string idempotency_key;              // empty: none
};

void check_request(const CreateRequest& request);
void check_request(const ExecRequest& request);

}  // namespace moorage::workspace
