// What of a workspace is live in this process: its running sandbox and its mounts. At most one
// overlay superblock an upper directory: `Mounted` is shared by all who use it, and unmounted after
// the last on a thread of its owner's share, as that syncs the whole file system below. A new one
// is made only after that. Rebuilt at start by reconcile.h from what survived.
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
#include "base/fair_pool.h"
#include "base/ids.h"
#include "workspace/overlay.h"

namespace moorage::workspace {

struct Mounted {
  ActiveMounts mounts;
  uint32_t user_host_id = 0;  // host id of the agent's user in these mounts
  uint32_t owner = 0;         // uid
};

struct Running {
  base::SandboxId sandbox;
  base::WorkspaceId workspace;
  uint32_t owner = 0;  // uid
  std::string name;
  backends::Backend* backend = nullptr;
  backends::Endpoint endpoint;
  base::ProcessIdentity init;
  std::shared_ptr<const Mounted> mounted;
  // CPU that questions of ours took in it (inside.h): not work of the agent's.
  std::shared_ptr<std::atomic<uint64_t>> asked_usec = std::make_shared<std::atomic<uint64_t>>(0);
};

// What the last look at a running sandbox saw (idle.h).
struct Rest {
  std::string busy_with{};  // "exec ex_3"; empty: nothing
  int64_t idle_ms = 0;      // for how long nothing was seen
  int64_t boot_ms = 0;      // when that look was
};

class Active {
 public:
  // Somebody uses, or is about to use, the sandbox of a workspace: it is not stopped as idle.
  class Use {
   public:
    Use() = default;
    Use(Active* owner, base::WorkspaceId workspace) : owner_(owner), workspace_(workspace) {}
    Use(Use&& other) noexcept;
    Use& operator=(Use&& other) noexcept;
    ~Use();

   private:
    Active* owner_ = nullptr;
    base::WorkspaceId workspace_;
  };
  // A running sandbox whose mounts are being exchanged: whoever asks for it waits. Without `done`
  // all is as before.
  class Exchange {
   public:
    Exchange(Active& owner, std::shared_ptr<const Running> running)
        : owner_(owner), running_(std::move(running)) {}
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;
    ~Exchange();
    const Running& running() const { return *running_; }
    void done(std::shared_ptr<const Running> next) { running_ = std::move(next); }

   private:
    Active& owner_;
    std::shared_ptr<const Running> running_;
  };
  Active();
  ~Active();  // lets go of what runs, and ends when its mounts are closed
  std::shared_ptr<const Running> running(base::WorkspaceId workspace);
  base::SandboxId running_sandbox(base::WorkspaceId workspace);  // 0: none; keeps nothing alive
  std::shared_ptr<const Running> by_sandbox(base::SandboxId sandbox);
  // Without its mounts; neither waits for an exchange nor keeps one from beginning.
  std::optional<Running> without_mounts(base::SandboxId sandbox);
  std::optional<Running> without_mounts(base::WorkspaceId workspace);
  void set_running(std::shared_ptr<const Running> running);
  void clear_running(base::SandboxId sandbox);
  // The same of all.
  std::vector<Running> all();

  // Take it first, then ask for what is running: so it is either there and stays, or a new one is
  // started.
  Use use(base::WorkspaceId workspace);
  bool in_use(base::WorkspaceId workspace);
  // Whether it was used since the last call.
  bool was_used(base::WorkspaceId workspace);
  // Takes a running sandbox away from all who ask for it from now on, if nobody uses it. Null: it
  // is in use, or gone. Caller holds the workspace's lock.
  std::shared_ptr<const Running> take_unused(const Running& running);
  // Null: somebody else has it, or its mounts, for more than a moment. Caller holds the workspace's
  // lock, and gives up its own reference.
  std::unique_ptr<Exchange> begin_exchange(std::shared_ptr<const Running> running);
  void set_rest(base::WorkspaceId workspace, const Rest& rest);
  std::optional<Rest> rest(base::WorkspaceId workspace);  // of the running one, once looked at
  std::set<base::WorkspaceId> mounted();  // those with mounts, being closed included

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
  // Called when a workspace's last mount was closed, on a thread that must not wait; or nothing is.
  void on_rest(std::function<void(base::WorkspaceId)> callback);

 private:
  struct Uses {
    size_t now = 0;
    bool since_look = false;
  };
  void close(base::WorkspaceId workspace, const Mounted* mounted);
  void end_use(base::WorkspaceId workspace);
  void forget_look(base::WorkspaceId workspace);
  void end_exchange(std::shared_ptr<const Running> running);

  std::mutex mutex_;
  std::condition_variable closed_;
  std::condition_variable exchanged_;
  std::set<base::WorkspaceId> exchanging_;
  std::map<base::WorkspaceId, std::shared_ptr<const Running>> running_;
  std::map<base::WorkspaceId, Uses> uses_;  // of those in use, and of the running ones
  std::map<base::WorkspaceId, Rest> rests_;
  std::map<base::WorkspaceId, std::weak_ptr<const Mounted>> mounted_;
  std::map<base::WorkspaceId, size_t> open_;  // mounts, those being closed included
  std::mutex rest_mutex_;                     // held while the callback runs
  std::function<void(base::WorkspaceId)> on_rest_;
  base::FairPool closers_;  // last: its work uses the rest
};

}  // namespace moorage::workspace
