// Stops idle sandboxes, and those at the end of their lifetime. Only the sandbox goes: the
// workspace keeps everything, and the next exec starts a new one.
//
// A sandbox is idle when it is not busy; busy_with() alone defines busy. Idle time is added up from
// check to check, and a check adds at most the pause planned before it. So a clock jump, a
// suspended host or a stopped daemon never makes a sandbox idle for longer than was observed. A
// restart of the daemon begins anew.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/fair_pool.h"
#include "state_db/tables/workspaces.h"
#include "workspace/access/leases.h"
#include "workspace/context/context.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/context/waiters.h"
#include "workspace/exec/pre_stop.h"
#include "workspace/verbs/requests.h"
#include "workspace/verbs/start_stop.h"

namespace moorage::workspace {

class ExecWatcher;

// Counts the idle time of one sandbox.
class IdleCount {
 public:
  struct Look {
    int64_t boot_ms = 0;
    bool in_use = false;    // now, or since the last check
    uint64_t cpu_usec = 0;  // of its processes since its start, without our own questions
  };
  // `pause_ms`: until the next check.
  void add(const Look& look, int64_t pause_ms);
  // It used more than 1 % of one CPU since the last check, without a user: a background process
  // works.
  bool works() const { return works_; }
  int64_t idle_ms() const { return idle_ms_; }

 private:
  bool first_ = true;
  bool busy_ = true;
  bool works_ = false;
  Look last_{};
  int64_t longest_ms_ = 0;  // the most that the next check may add
  int64_t idle_ms_ = 0;
};

class IdleKeeper {
 public:
  IdleKeeper(Context& context, Leases& leases, Waiters& waiters, PreStop& pre_stop,
             StartStop& start_stop, ExecWatcher& watcher)
      : context_(context),
        leases_(leases),
        waiters_(waiters),
        pre_stop_(pre_stop),
        start_stop_(start_stop),
        watcher_(watcher),
        stoppers_(kStoppers, kMaxQueue) {}
  ~IdleKeeper() { waiters_.leave(); }  // gives up stops that wait for a hook

  void look();  // call it every second; its own threads do the stopping

 private:
  // A stop waits for the disk and for processes to end. One user gets at most half of the threads.
  static constexpr size_t kStoppers = 4;
  static constexpr size_t kMaxQueue = 10'000;  // of each user
  struct Known {
    IdleCount count;
    int64_t next_boot_ms = 0;  // when to check again
    bool warned = false;       // about the end of its lifetime
  };
  void look_at(const LiveSandbox& running, Known& known);
  // Why it must not be stopped as idle; empty: it may be.
  std::string busy_with(const LiveSandbox& running);
  void look_at_budget(const LiveSandbox& running);
  void look_at_lifetime(const LiveSandbox& running, const state_db::WorkspaceRow& row,
                        Known& known);
  using Stop = void (IdleKeeper::*)(const LiveSandbox&);
  void stop_later(const LiveSandbox& running, uint32_t owner, Stop stop);
  void submit(const LiveSandbox& running, uint32_t owner, Stop stop);
  void stop_idle(const LiveSandbox& running);
  void stop_old(const LiveSandbox& running);

  Context& context_;
  Leases& leases_;
  Waiters& waiters_;
  PreStop& pre_stop_;
  StartStop& start_stop_;
  ExecWatcher& watcher_;
  std::map<base::SandboxId, Known> known_;  // used only by look()
  std::mutex mutex_;
  std::set<base::SandboxId> being_stopped_;
  base::FairPool stoppers_;  // last member: its work uses the others
};

}  // namespace moorage::workspace
