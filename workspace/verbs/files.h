// The resources that a request holds while it reads or writes files of a workspace.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/keyed_mutex.h"
#include "layers/tree_files.h"
#include "state_db/tables/workspaces.h"
#include "workspace/access/leases.h"
#include "workspace/chain/chains.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/remote/remote_copy.h"

namespace moorage::workspace {

// Keeps the mount: hold it as long as you use its TreeFiles, a Writer of it or a descriptor. It is
// not the writer lease: a change holds a FileChange from its last check to its end.
struct FilesLease {
  std::shared_ptr<const SharedMounts> mounted;
  layers::TreeFiles files;
  state_db::WorkspaceRow row;
  LiveSandboxes::Use use;
};

// At most one in a workspace at a time, among changes through the API.
struct FileChange {
  base::KeyedMutex::Guard alone;
  Leases::Writing writing;
  RemoteCopy::Change remote;
  std::vector<std::string> paths;  // that the machine must get, if it runs on another one
};

class Files {
 public:
  Files(Context& context, Leases& leases, RemoteCopy& remote, Chains& chains,
        IntegrityCheck& integrity)
      : context_(context),
        leases_(leases),
        remote_(remote),
        chains_(chains),
        integrity_(integrity) {}

  // Files by inside path ("/workspace/...", "/home/user/...", relative = below /workspace).
  FilesLease open(const Caller& caller, const std::string& name, Right right);
  // `paths`: those that may change, with what is below them.
  FileChange change(const Caller& caller, const FilesLease& lease,
                    const std::vector<std::string>& paths);
  // The objects of its repository on this host as a pack of git, in an unnamed file: those that its
  // own .git does not have.
  base::Fd objects(const Caller& caller, const std::string& name);
  // Call when it is made. Returns once every machine that runs the workspace has it.
  void finish(FileChange change);

 private:
  std::shared_ptr<const SharedMounts> mounts(const state_db::WorkspaceRow& row, Right right);

  Context& context_;
  Leases& leases_;
  RemoteCopy& remote_;
  Chains& chains_;
  IntegrityCheck& integrity_;
};

}  // namespace moorage::workspace
