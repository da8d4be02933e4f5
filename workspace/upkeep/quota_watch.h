// Keeps workspaces below their disk limit where the kernel does not (layers/quota/disk_quota.h),
// and tracks how much each uses, for uploads. A workspace's own data counts: writable layer, frozen
// layers, journals (workspace/context/disk_use.h).
//
// The last walk's count plus the bytes written since (SandboxWrites) is at least the current
// use. One thread compares it with the limit, so often that at 2 GB/s only some tens of MiB go
// unseen, and walks only when the limit may have been passed. Over the limit, it ends the commands
// that wrote since the last walk, category disk_quota; one that ends by itself is checked at its
// end and gets the same reason. Others keep running, so that an agent can remove files. A process
// left behind by a command is killed when it writes, with its sandbox if nothing else runs. Empty
// files and fallocate write no page: lost free space of the whole store (SpaceMoves) hints at
// them in a sandbox whose processes did anything; of these, all that were not asleep end. Others
// may have freed as much meanwhile, so it also walks at times.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/single_flight.h"
#include "layers/quota/disk_quota.h"
#include "state_db/tables/workspaces.h"
#include "workspace/access/admission.h"
#include "workspace/context/context.h"
#include "workspace/context/disk_use.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/exec/watcher.h"
#include "workspace/upkeep/quota_use.h"
#include "workspace/verbs/start_stop.h"

namespace moorage::workspace {

class QuotaWatch : public DiskLimits, private ExecListener {
 public:
  QuotaWatch(Context& context, ExecWatcher& watcher, StartStop& start_stop);

  // Runs the thread while it lives.
  class Work {
   public:
    explicit Work(QuotaWatch& watch);
    ~Work();
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    void run();
    QuotaWatch& watch_;
    bool ending_ = false;
    std::thread thread_;
  };

  // resource_exhausted: so far over its limit that only commands that remove files may start.
  void require_within(const state_db::WorkspaceRow& row) override;
  void measure_rested();  // uploads to stopped workspaces; about once a second
  // Throws resource_exhausted if the workspace has no room for these bytes and one more file. The
  // reservation counts until the next measurement.
  void require_room(const state_db::WorkspaceRow& row, uint64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  // The walks of one workspace take at most one part in this many of the time.
  static constexpr int kShare = 10;
  // How long a command's start or end waits for the walk that checks the limit.
  static constexpr std::chrono::milliseconds kWaitedFor{3'000};
  // Beyond the limit; from here on only commands that remove files may start.
  static constexpr uint64_t kMostOver = 16 << 20;
  bool suspects_disk(const state_db::ExecRow& ended) override;
  std::optional<std::string> judge_disk(const state_db::ExecRow& ended) override;  // may walk
  struct Seen {
    layers::QuotaUse use;     // at the last walk
    SandboxWrites writes;     // then
    SpaceMoves::Sums space;   // of the store, then
    layers::QuotaLimit left;  // the kernel's limit for the writable layer, then
    bool walked = false;      // completely, in this sandbox
    bool uncounted = false;   // the last walk failed to count: treat as over
    base::SandboxId sandbox;  // that these counts belong to
    std::chrono::milliseconds took{0};
    uint64_t last_all = 0;
    Clock::time_point next_look{};
    Clock::time_point next_walk{};              // unless the limit is passed by much
    Clock::time_point next_quiet_walk{};        // even if nothing was written
    bool uploaded = false;                      // since the last measurement
    std::set<base::ExecId> ending;              // commands waiting for a verdict
    std::optional<layers::QuotaUse> over;       // lowest use since it exceeded the limit
    std::map<base::ExecId, std::string> ended;  // to end in this sandbox, and why
    std::string told;                           // why a walk last ended commands
    Clock::time_point unclaimed_until{};        // until then an ended writer gets the reason
    base::ExecId unclaimed_newest;              // newest then: later ones did not write
  };
  Clock::time_point look();  // returns when to check next
  void expect_command();     // about to start, maybe with its sandbox
  Clock::time_point look_at(const LiveSandbox& running);
  struct QuotaCount {
    layers::QuotaUse use{};
    bool complete = true;      // else the use is unknown; `use` is set over the limit
    bool lower_bound = false;  // frozen layers are not yet measured
  };
  bool may_have_moved(const LiveSandbox& running, const layers::QuotaLimit& limit,
                      const Seen& seen);
  void walk(base::WorkspaceId id);
  std::optional<QuotaCount> measure(const state_db::WorkspaceRow& row, const LiveSandbox* running,
                                    const SandboxWrites& writes);
  bool ask_for(const state_db::WorkspaceRow& row, const std::vector<base::LayerId>& unmeasured);
  void measure_frozen(base::WorkspaceId id);
  bool is_below(const state_db::WorkspaceRow& row, const Seen& before, const Seen& now);
  static bool has_taken(const Seen& before, const Seen& now, const layers::QuotaLimit& limit);
  std::function<void(int64_t)> attempting(void (QuotaWatch::*work)(base::WorkspaceId));
  Seen first_of(const state_db::WorkspaceRow& row, const LiveSandbox& running);
  void hold_to_rest(const state_db::WorkspaceRow& row, Seen& seen);
  void judge(const state_db::WorkspaceRow& row, const LiveSandbox& running, const Seen& before,
             Seen& seen);
  void end_writers(const state_db::WorkspaceRow& row, const LiveSandbox& running,
                   const Seen& before, Seen& seen);
  void measure_dead(const state_db::WorkspaceRow& row, const LiveSandbox& running,
                    const std::vector<base::ExecId>& killed, Seen& seen);
  void measure_one_rested(base::WorkspaceId id, const layers::QuotaUse& counted);

  Context& context_;
  ExecWatcher& watcher_;
  StartStop& start_stop_;
  SpaceMoves free_space_;
  std::mutex mutex_;
  std::map<base::WorkspaceId, Seen> seen_;
  Clock::time_point expects_until_{};
  std::condition_variable awaited_;  // a command or the end of the thread
  CountlessLayers countless_;
  base::SingleFlight frozen_walks_;  // these three last: their work uses the members above
  base::SingleFlight walks_;         // requests frozen_walks_
  ExecListeners::Handle listens_;
};

}  // namespace moorage::workspace
