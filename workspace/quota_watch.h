// Holds workspaces below their disk limit where the kernel does not (disk_quota.h), and knows for
// uploads what each has taken. What counts is all that is its own: writable layer, frozen layers,
// journals (disk_use.h).
//
// What was there at the last walk and what its processes have written since (sandbox_writes.h) is
// at least what it takes now. One thread compares that with the limit, so often that at 2 GB/s no
// more than some tens of MiB go by unseen, and walks only when the limit may have been passed. Who
// is over it has the commands ended that wrote since the last walk, category disk_quota; one that
// ends by itself is checked at its end and reads the same. Others run on, so that an agent can
// remove files. What commands left running is ended when it writes, with the sandbox if nothing
// else runs. Empty files and fallocate write no page: what the whole store has lost of its free
// space (space_moves.h) says that there may have been some, in a sandbox whose processes did
// anything; of these, those end that were not asleep. As others may have removed as much at the
// same moment, there is a walk at times as well.
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

#include "base/flights.h"
#include "state_db/workspaces.h"
#include "workspace/active.h"
#include "workspace/context.h"
#include "workspace/countless_layers.h"
#include "workspace/disk_quota.h"
#include "workspace/exec_watcher.h"
#include "workspace/sandbox_writes.h"
#include "workspace/space_moves.h"

namespace moorage::workspace {

QuotaLimit limit_of(const state_db::WorkspaceRow& row);

class QuotaWatch {
 public:
  using Stop = std::function<void(base::WorkspaceId, const std::string& reason)>;
  QuotaWatch(Context& context, Active& active, ExecWatcher& watcher, Stop stop);

  // The thread, while it lives.
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

  // resource_exhausted: it is so far over its limit that only commands that remove are started.
  void require_within(const state_db::WorkspaceRow& row);
  void measure_rested();  // what was uploaded to those at rest; about once a second
  // Throws resource_exhausted when the workspace may not take so many bytes and one file more. What
  // it takes then counts, until it is measured again.
  void require_room(const state_db::WorkspaceRow& row, uint64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  // Of the time, one part of so many for the walks of one workspace.
  static constexpr int kShare = 10;
  // Of a command's start or end, for the walk that says whether it is over the limit.
  static constexpr std::chrono::milliseconds kWaitedFor{3'000};
  // Beyond the limit; from there on only commands that remove are started.
  static constexpr uint64_t kMostOver = 16 << 20;
  // For a command that ended: why it counts as ended for the disk; nothing: it does not. The first
  // is quick, and says whether the second, which may walk, is to be asked.
  bool suspects(const state_db::ExecRow& ended);
  std::optional<std::string> judge_ended(const state_db::ExecRow& ended);
  struct Seen {
    QuotaUse use;             // at the last walk
    SandboxWrites writes;     // then
    SpaceMoves::Sums space;   // then, of the store
    QuotaLimit left;          // then, what the kernel is to hold the writable layer to
    bool walked = false;      // and counted whole, in this sandbox
    bool uncounted = false;   // the last walk could not count it: it is taken to be over
    base::SandboxId sandbox;  // whose counts these are
    std::chrono::milliseconds took{0};
    uint64_t last_all = 0;
    Clock::time_point next_look{};
    Clock::time_point next_walk{};        // unless the limit is passed by much
    Clock::time_point next_quiet_walk{};  // though nothing was written
    bool uploaded = false;                // since it was measured
    std::set<base::ExecId> ending;        // commands that wait to be judged
    std::optional<QuotaUse> over;         // the least that it took since it was over the limit
    std::map<base::ExecId, std::string> ended;  // that were to be ended, in this sandbox, and why
    std::string told;                           // why a walk last ended commands
    Clock::time_point unclaimed_until{};  // those that wrote had ended by then, and are to read it
    base::ExecId unclaimed_newest;        // of the workspace then: who came later did not write
  };
  Clock::time_point look();  // when to look next
  void expect_command();     // one is about to start, maybe with its sandbox
  Clock::time_point look_at(const Running& running);
  struct QuotaCount {
    QuotaUse use{};
    bool complete = true;      // else nobody knows, and `use` is over the limit
    bool lower_bound = false;  // frozen layers wait to be measured
  };
  bool may_have_moved(const Running& running, const QuotaLimit& limit, const Seen& seen);
  void walk(base::WorkspaceId id);
  std::optional<QuotaCount> measure(const state_db::WorkspaceRow& row, const Running* running,
                                    const SandboxWrites& writes);
  bool ask_for(const state_db::WorkspaceRow& row, const std::vector<base::LayerId>& unmeasured);
  void measure_frozen(base::WorkspaceId id);
  bool is_below(const state_db::WorkspaceRow& row, const Seen& before, const Seen& now);
  static bool has_taken(const Seen& before, const Seen& now, const QuotaLimit& limit);
  std::function<void(int64_t)> attempting(void (QuotaWatch::*work)(base::WorkspaceId));
  Seen first_of(const state_db::WorkspaceRow& row, const Running& running);
  void hold_to_rest(const state_db::WorkspaceRow& row, Seen& seen);
  void judge(const state_db::WorkspaceRow& row, const Running& running, const Seen& before,
             Seen& seen);
  void end_writers(const state_db::WorkspaceRow& row, const Running& running, const Seen& before,
                   Seen& seen);
  void measure_dead(const state_db::WorkspaceRow& row, const Running& running,
                    const std::vector<base::ExecId>& killed, Seen& seen);
  void measure_one_rested(base::WorkspaceId id, const QuotaUse& counted);

  Context& context_;
  Active& active_;
  ExecWatcher& watcher_;
  const Stop stop_;
  SpaceMoves free_space_;
  std::mutex mutex_;
  std::map<base::WorkspaceId, Seen> seen_;
  Clock::time_point expects_until_{};
  std::condition_variable awaited_;  // a command, or the end of the work
  CountlessLayers countless_;
  base::Flights frozen_walks_;  // these two last: their work uses the rest
  base::Flights walks_;         // whose work asks for those
};

}  // namespace moorage::workspace
