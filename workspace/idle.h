// Stops sandboxes that nobody needs, and those that have lived as long as they may. Only the
// sandbox goes: the workspace keeps everything, and the next exec starts a new one.
//
// Idle is what is not busy, and busy_with() is the one place that says what busy is. Idle time is
// added up from look to look, and a look adds no more than the pause that was planned before it:
// so no jump of a clock, no suspended host and no daemon that was away or stopped makes a sandbox
// idle for longer than it was seen to be. A restart of the daemon begins anew.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/fair_pool.h"
#include "state_db/workspaces.h"
#include "workspace/active.h"
#include "workspace/context.h"
#include "workspace/requests.h"

namespace moorage::workspace {

class ExecWatcher;
class Workspaces;

// Of one sandbox.
class IdleCount {
 public:
  struct Look {
    int64_t boot_ms = 0;
    bool in_use = false;    // now, or since the last look
    uint64_t cpu_usec = 0;  // of its processes since its start, without what we asked ourselves
  };
  // `pause_ms`: to the next look.
  void add(const Look& look, int64_t pause_ms);
  // More than 1 % of one CPU since the look before, and nobody used it: something left behind
  // works.
  bool works() const { return works_; }
  int64_t idle_ms() const { return idle_ms_; }

 private:
  bool first_ = true;
  bool busy_ = true;
  bool works_ = false;
  Look last_{};
  int64_t longest_ms_ = 0;  // that the next look may add
  int64_t idle_ms_ = 0;
};

RestView look_at_rest(const WorkspaceView& view, Active& active, const base::Clock& clock);

class IdleKeeper {
 public:
  IdleKeeper(Context& context, Workspaces& workspaces, Active& active, ExecWatcher& watcher);
  ~IdleKeeper();  // gives up stops that wait for a hook

  void look();  // call it every second; it stops nothing itself, its threads do

 private:
  struct Known {
    IdleCount count;
    int64_t next_boot_ms = 0;  // when to look again
    bool warned = false;       // that its lifetime ends
  };
  void look_at(const Running& running, Known& known);
  // Why it must not be stopped as idle; empty: nothing.
  std::string busy_with(const Running& running);
  void look_at_budget(const Running& running);
  void look_at_lifetime(const Running& running, const state_db::WorkspaceRow& row, Known& known);
  using Stop = void (IdleKeeper::*)(const Running&);
  void stop_later(const Running& running, uint32_t owner, Stop stop);
  void submit(const Running& running, uint32_t owner, Stop stop);
  void stop_idle(const Running& running);
  void stop_old(const Running& running);

  Context& context_;
  Workspaces& workspaces_;
  Active& active_;
  ExecWatcher& watcher_;
  std::map<base::SandboxId, Known> known_;  // of look() alone
  std::mutex mutex_;
  std::set<base::SandboxId> being_stopped_;
  base::FairPool stoppers_;  // last: its work uses the rest
};

}  // namespace moorage::workspace
