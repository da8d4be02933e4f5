// The networks of running sandboxes. Each sandbox has a line to its warden, which makes the sockets
// inside, and a moorage-egress outside, which uses them; this starts the second when a name is
// first asked for, gives it its settings, restarts it when it ends, and records which hosts
// commands were refused. A verb that changes a workspace's policy calls apply().
//
// One thread watches descriptors; all that may wait runs on a pool, shared fairly.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/egress_client.h"
#include "base/fair_pool.h"
#include "base/ids.h"
#include "base/os/fd.h"
#include "base/os/loop_thread.h"
#include "workspace/context/context.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/exec/listener.h"
#include "workspace/exec/watcher.h"
#include "workspace/network/egress_supply.h"
#include "workspace/network/git_streams.h"
#include "workspace/network/push_judge.h"
#include "workspace/network/settings.h"
#include "workspace/network/sightings.h"

namespace moorage::workspace {

class Networks : private ExecListener {
 public:
  Networks(Context& context, ExecWatcher& watcher, Sightings& sightings,
           const NetworkOptions& options);
  ~Networks();

  base::NetworkPolicy policy_of(const state_db::WorkspaceRow& row) const;
  std::string summary_of(const std::string& mode) const;

  // Before the sandbox starts: the warden's end of its line.
  Fd make_line(base::SandboxId sandbox);
  // Once it runs; an adopted one, too. Never throws: a sandbox without a network is of use.
  void watch(const LiveSandbox& running);
  void forget(base::SandboxId sandbox);

  // Applies the workspace's policy to its running sandbox before it returns. Returns the number of
  // connections cut.
  size_t apply(base::WorkspaceId workspace);
  // The same for all workspaces of a user, whose credentials changed.
  void apply_to_owner(uint32_t uid);
  // As of a second ago. Empty: nothing asked for a name.
  std::optional<base::NetworkUse> use(base::SandboxId sandbox) const;
  uint64_t open_connections() const;  // of all sandboxes

 private:
  struct Watched;
  using WatchedPtr = std::shared_ptr<Watched>;

  void start_egress(const WatchedPtr& watched);
  // On the pool:
  void adopt(const WatchedPtr& watched);
  bool take_over_egress(const WatchedPtr& watched);
  void begin_egress(const WatchedPtr& watched);
  void answer_once(const WatchedPtr& watched, const std::string& question,
                   const std::function<void()>& work);
  void count(Watched& watched, const base::NetworkUse& use);
  void take_news(const WatchedPtr& watched, const backends::EgressClient::News& news);
  bool read_news(const WatchedPtr& watched, backends::EgressClient& client);
  // On the loop's thread:
  void look_at_host(const std::string& before);
  void refresh_all();
  void watch_questions(const WatchedPtr& watched);
  void take_resolver(const WatchedPtr& watched);
  void follow(const WatchedPtr& watched, std::shared_ptr<backends::EgressClient> client);
  void watch_follower(const WatchedPtr& watched);
  void lost(const WatchedPtr& watched);
  void retry(const WatchedPtr& watched);
  size_t apply_to(Watched& watched);  // under its `serial`
  base::ExecId exec_of(const Watched& watched, uint64_t cgroup);
  std::optional<std::string> refused_host(const state_db::ExecRow& exec) override;
  void exec_ended(const state_db::ExecRow& exec) override { sightings_.ended(exec.id); }

  Context& context_;
  Sightings& sightings_;
  const NetworkOptions& options_;
  const EgressSupply supply_;
  const PushJudge push_judge_;
  GitStreams streams_;
  mutable std::mutex mutex_;             // for the next two; held only briefly
  std::map<base::SandboxId, Fd> lines_;  // of sandboxes that are not watched yet
  std::map<base::SandboxId, WatchedPtr> watched_;
  base::LoopThread thread_;
  base::FairPool pool_;
  base::Timer host_timer_;         // of the thread
  ExecListeners::Handle listens_;  // last member: its calls use the others
};

}  // namespace moorage::workspace
