// What of a workspace is live in this process: its running sandbox and its mounts. At most one
// overlay superblock an upper directory: `Mounted` is shared by all who use it and dies with the
// last; a new one is made only after that. Rebuilt at start by reconcile.h from what survived.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backends/backend.h"
#include "base/ids.h"
#include "workspace/overlay.h"

namespace moorage::workspace {

struct Mounted {
  ActiveMounts mounts;
  uint32_t user_host_id = 0;  // host id of the agent's user in these mounts
};

struct Running {
  base::SandboxId sandbox;
  base::WorkspaceId workspace;
  std::string name;
  backends::Backend* backend = nullptr;
  backends::Endpoint endpoint;
  base::ProcessIdentity init;
  std::shared_ptr<const Mounted> mounted;
};

class Active {
 public:
  std::shared_ptr<const Running> running(base::WorkspaceId workspace);
  std::shared_ptr<const Running> by_sandbox(base::SandboxId sandbox);
  void set_running(std::shared_ptr<const Running> running);
  void clear_running(base::SandboxId sandbox);
  std::vector<std::shared_ptr<const Running>> all();

  // The mount at rest, made by `mount` when there is none. Caller holds the workspace's lock.
  std::shared_ptr<const Mounted> at_rest(base::WorkspaceId workspace,
                                         const std::function<Mounted()>& mount);
  // Waits until nobody uses the workspace's mounts; conflict after `patience`. Caller holds the
  // lock.
  void wait_unmounted(base::WorkspaceId workspace, std::chrono::milliseconds patience);

 private:
  std::mutex mutex_;
  std::map<base::WorkspaceId, std::shared_ptr<const Running>> running_;
  std::map<base::WorkspaceId, std::weak_ptr<const Mounted>> mounted_;
};

}  // namespace moorage::workspace
