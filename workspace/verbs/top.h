// One view of all workspaces' current activity: rows, the counters of each live sandbox's control
// groups, and commands that wait for input. It walks no files and sends no request to a sandbox:
// the cost is a few small reads per sandbox, and a bounded number of processes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backends/backend.h"
#include "state_db/tables/execs.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/workspaces.h"
#include "workspace/access/access.h"
#include "workspace/context/context.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/exec/watcher.h"
#include "workspace/network/networks.h"

namespace moorage::workspace {

struct TopLine {
  state_db::WorkspaceRow row;
  std::optional<state_db::SandboxRow> sandbox;  // the live one
  backends::SandboxStatus status;               // state absent: no sandbox
  std::vector<state_db::ExecRow> execs;         // running, oldest first
  std::vector<base::ExecId> waiting;            // those of them that wait for input
  std::optional<Blocked> blocked;               // one of them, by its network
  std::optional<base::NetworkUse> network;      // once a name was asked for
  int64_t last_output_ms = 0;                   // the latest of these; wall time, 0: none
};

struct TopView {
  int64_t wall_ms = 0;
  int64_t boot_us = 0;         // for CPU shares between two views
  std::vector<TopLine> lines;  // by id
};

class Top {
 public:
  Top(Context& context, ExecWatcher& watcher, const Networks& networks, const Sightings& sightings)
      : context_(context), watcher_(watcher), networks_(networks), sightings_(sightings) {}
  // `own`: only the caller's, also for root.
  TopView look(const Caller& caller, bool own);

 private:
  void look_at_sandbox(TopLine& line, size_t& execs_left);

  Context& context_;
  ExecWatcher& watcher_;
  const Networks& networks_;
  const Sightings& sightings_;
};

}  // namespace moorage::workspace
