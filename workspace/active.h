// What of a workspace is live in this process: its running sandbox and its mounts. At most one
// overlay superblock an upper directory: `Mounted` is shared by all who use it, and unmounted after
// the last by a thread of its own: that syncs the whole file system below, and the last may be one
// who must not wait. A new one is made only after that. Rebuilt at start by reconcile.h from what
// survived.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backends/backend.h"
#include "base/ids.h"
#include "base/thread_pool.h"
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
  Active();
  ~Active();  // lets go of what runs, and ends when its mounts are closed
  std::shared_ptr<const Running> running(base::WorkspaceId workspace);
  std::shared_ptr<const Running> by_sandbox(base::SandboxId sandbox);
  void set_running(std::shared_ptr<const Running> running);
  void clear_running(base::SandboxId sandbox);
  std::vector<std::shared_ptr<const Running>> all();

  // Counts a mount of the workspace until it is closed. Caller holds the workspace's lock and has
  // waited until the one before was unmounted.
  std::shared_ptr<const Mounted> share(base::WorkspaceId workspace, Mounted mounted);
  // The mount at rest, made by `mount` when there is none. Caller holds the workspace's lock.
  std::shared_ptr<const Mounted> at_rest(base::WorkspaceId workspace,
                                         const std::function<Mounted()>& mount,
                                         std::chrono::milliseconds patience);
  // Waits until nobody uses the workspace's mounts; conflict after `patience`. Caller holds the
  // lock.
  void wait_unmounted(base::WorkspaceId workspace, std::chrono::milliseconds patience);
  bool mounted(base::WorkspaceId workspace);  // or being unmounted
  // Called when the last mount of a workspace was closed, on a thread that must not wait. Set to
  // nothing, none is called afterwards.
  void on_rest(std::function<void(base::WorkspaceId)> callback);

 private:
  void close(base::WorkspaceId workspace, const Mounted* mounted);

  std::mutex mutex_;
  std::condition_variable closed_;
  std::map<base::WorkspaceId, std::shared_ptr<const Running>> running_;
  std::map<base::WorkspaceId, std::weak_ptr<const Mounted>> mounted_;
  std::map<base::WorkspaceId, size_t> open_;  // mounts, those being closed included
  std::mutex rest_mutex_;                     // held while the callback runs
  std::function<void(base::WorkspaceId)> on_rest_;
  base::ThreadPool closers_;  // last: its work uses the rest
};

}  // namespace moorage::workspace
