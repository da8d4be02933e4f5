// One look at what the workspaces do now: rows, the counters of each live sandbox's control groups,
// and which commands wait for input. Nothing is walked and no sandbox is asked: the cost is a few
// small reads a sandbox, and a bounded number of processes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backends/backend.h"
#include "state_db/execs.h"
#include "state_db/sandboxes.h"
#include "state_db/workspaces.h"
#include "workspace/active.h"
#include "workspace/context.h"
#include "workspace/exec_watcher.h"

namespace moorage::workspace {

struct TopLine {
  state_db::WorkspaceRow row;
  std::optional<state_db::SandboxRow> sandbox;  // the live one
  backends::SandboxStatus status;               // state absent: there is none
  std::vector<state_db::ExecRow> execs;         // that run, oldest first
  std::vector<base::ExecId> waiting;            // of these, for input
  int64_t last_output_ms = 0;                   // of any of these; wall time, 0: none
};

struct TopView {
  int64_t wall_ms = 0;
  int64_t boot_us = 0;         // to tell CPU shares of two looks
  std::vector<TopLine> lines;  // by id
};

class Top {
 public:
  Top(Context& context, Active& active, ExecWatcher& watcher)
      : context_(context), active_(active), watcher_(watcher) {}
  // `own`: the caller's only, also for root.
  TopView look(const Caller& caller, bool own);

 private:
  void look_at_sandbox(TopLine& line, size_t& execs_left);
  std::vector<base::ExecId> waiting(const TopLine& line, const Running& running,
                                    size_t& execs_left);

  Context& context_;
  Active& active_;
  ExecWatcher& watcher_;
};

}  // namespace moorage::workspace
