// The parts of a workspace that are live in this process: its running sandbox and its mounts. An
// upper directory has at most one overlay superblock: all users share one `SharedMounts`. After the
// last one, a thread from its owner's share unmounts it, because that syncs the whole file system
// below; only then is a new one mounted. workspace/recovery/reconcile.h rebuilds this at start from
// whatever survived.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/clock.h"
#include "base/fair_pool.h"
#include "base/ids.h"
#include "layers/overlay.h"

namespace moorage::workspace {

struct SharedMounts {
  layers::ActiveMounts mounts;
  uint32_t user_host_id = 0;  // host id of the agent's user in these mounts
  uint32_t owner = 0;         // uid
};

struct LiveSandbox {
  base::SandboxId sandbox;
  base::WorkspaceId workspace;
  uint32_t owner = 0;  // uid
  std::string name;
  backends::Backend* backend = nullptr;
  bool remote = false;  // on another machine: the mounts follow by packs (workspace/remote)
  backends::Endpoint endpoint;
  base::ProcessIdentity init;
  std::shared_ptr<const SharedMounts> mounted;
  // CPU time of our own queries in it (workspace/exec/query.h): not the agent's work.
  std::shared_ptr<std::atomic<uint64_t>> asked_usec = std::make_shared<std::atomic<uint64_t>>(0);
};

inline constexpr int64_t kMostIdlePause_ms = 10'000;  // between two checks for idleness

// How old it is, from the kernel's start time of its init: a daemon restart does not reset it.
int64_t age_ms(const base::ProcessIdentity& init, const base::Clock& clock);

// Result of the last check of a running sandbox (workspace/upkeep/idle_stop.h).
inline constexpr const char* kBusyWithExec = "exec ";
struct IdleState {
  std::string busy_with{};  // "exec ex_3"; empty: nothing
  int64_t idle_ms = 0;      // time without activity
  int64_t boot_ms = 0;      // when that check ran
};

class LiveSandboxes {
 public:
  // The sandbox is in use or about to be: it is not stopped as idle.
  using Use = std::shared_ptr<void>;
  // A running sandbox whose mounts are being exchanged: readers wait. Without `done` nothing
  // changes.
  class Exchange {
   public:
    Exchange(LiveSandboxes& owner, std::shared_ptr<const LiveSandbox> running)
        : owner_(owner), running_(std::move(running)) {}
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;
    ~Exchange() { owner_.end_exchange(std::move(running_)); }
    const LiveSandbox& running() const { return *running_; }
    void done(std::shared_ptr<const LiveSandbox> next) { running_ = std::move(next); }

   private:
    LiveSandboxes& owner_;
    std::shared_ptr<const LiveSandbox> running_;
  };
  LiveSandboxes();
  ~LiveSandboxes();  // drops all running sandboxes, then waits for their mounts to close
  std::shared_ptr<const LiveSandbox> running(base::WorkspaceId workspace);
  base::SandboxId running_sandbox(base::WorkspaceId workspace);  // 0: none; keeps nothing alive
  std::shared_ptr<const LiveSandbox> by_sandbox(base::SandboxId sandbox);
  // Without mounts: neither waits for an exchange nor blocks one.
  std::optional<LiveSandbox> without_mounts(base::SandboxId sandbox);
  std::optional<LiveSandbox> without_mounts(base::WorkspaceId workspace);
  void set_running(std::shared_ptr<const LiveSandbox> running);
  void clear_running(base::SandboxId sandbox);
  // All of them, without mounts.
  std::vector<LiveSandbox> all();

  // Call this first, then running(): a sandbox found afterwards stays, otherwise start a new one.
  Use use(base::WorkspaceId workspace);
  bool in_use(base::WorkspaceId workspace);
  // Whether it was used since the previous call.
  bool was_used(base::WorkspaceId workspace);
  // Removes a running sandbox from all later lookups if nobody uses it. Null: in use, or gone.
  // Caller holds the workspace's lock.
  std::shared_ptr<const LiveSandbox> take_unused(const LiveSandbox& running);
  // Null: it or its mounts stayed in use for more than a moment. Caller holds the workspace's lock,
  // and gives up its own reference.
  std::unique_ptr<Exchange> begin_exchange(std::shared_ptr<const LiveSandbox> running);
  void set_rest(base::WorkspaceId workspace, const IdleState& rest);
  std::optional<IdleState> rest(base::WorkspaceId workspace);  // nullopt until its first check
  std::set<base::WorkspaceId> mounted();  // also those whose mounts are closing

  // Counts a mount of the workspace until it is closed. Caller holds the workspace's lock and has
  // waited until the previous mount was gone.
  std::shared_ptr<const SharedMounts> share(base::WorkspaceId workspace, SharedMounts mounted);
  // The mount of a stopped workspace; calls `mount` if none exists. Caller holds the lock.
  std::shared_ptr<const SharedMounts> at_rest(base::WorkspaceId workspace,
                                              const std::function<SharedMounts()>& mount,
                                              std::chrono::milliseconds patience);
  // Waits until the workspace's mounts are unused; conflict after `patience`. Caller holds the
  // lock.
  void wait_unmounted(base::WorkspaceId workspace, std::chrono::milliseconds patience);
  bool mounted(base::WorkspaceId workspace);  // also while it is being unmounted
  // Called after a workspace's last mount is closed; must not block. Empty: no callback.
  void on_rest(std::function<void(base::WorkspaceId)> callback);

 private:
  struct Uses {
    size_t now = 0;
    bool since_look = false;
  };
  void close(base::WorkspaceId workspace, const SharedMounts* mounted);
  void end_use(base::WorkspaceId workspace);
  void forget_look(base::WorkspaceId workspace);
  void end_exchange(std::shared_ptr<const LiveSandbox> running);

  std::mutex mutex_;
  std::condition_variable closed_;
  std::condition_variable exchanged_;
  std::set<base::WorkspaceId> exchanging_;
  std::map<base::WorkspaceId, std::shared_ptr<const LiveSandbox>> running_;
  std::map<base::WorkspaceId, Uses> uses_;  // of workspaces in use or running
  std::map<base::WorkspaceId, IdleState> rests_;
  std::map<base::WorkspaceId, std::weak_ptr<const SharedMounts>> mounted_;
  std::map<base::WorkspaceId, size_t> open_;  // number of mounts, closing ones included
  std::mutex rest_mutex_;                     // held while the callback runs
  std::function<void(base::WorkspaceId)> on_rest_;
  base::FairPool closers_;  // last member: its work uses the others
};

}  // namespace moorage::workspace
