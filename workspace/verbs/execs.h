// Verbs on execs. First comes the record (one commit, with the idempotency key), then the journal
// file outside the sandbox, then the request to the warden: a command runs once or not at all. The
// watcher thread reads the end from the journal, so the end is found even if this daemon was down
// when it happened.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backends/envd_client.h"
#include "base/error.h"
#include "base/metrics.h"
#include "state_db/reads.h"
#include "workspace/access/admission.h"
#include "workspace/access/leases.h"
#include "workspace/context/context.h"
#include "workspace/exec/launch.h"
#include "workspace/snapshot/taker.h"
#include "workspace/verbs/requests.h"
#include "workspace/verbs/start_stop.h"
#include "workspace/verbs/views.h"

namespace moorage::workspace {

struct ExecView {
  state_db::ExecRow row;
  uint64_t output_bytes = 0;             // so far, also while running
  int64_t last_output_ms = 0;            // wall time, 0: none
  std::optional<uint64_t> late_bytes{};  // written after its end; set where the journal was read
  std::string warning;  // only from a start: files changed outside, or no snapshot; empty: none
};

class Execs {
 public:
  Execs(Context& context, Leases& leases, SnapshotTaker& taker, StartStop& start_stop, Views& views,
        DiskLimits& limits, ExecWatcher& watcher)
      : context_(context),
        leases_(leases),
        taker_(taker),
        start_stop_(start_stop),
        views_(views),
        limits_(limits),
        watcher_(watcher),
        launcher_(context, watcher) {}

  // Starts the sandbox if needed. The same key and request return the first run's view and run
  // nothing. The same key with another request throws already_exists.
  ExecView start(const Caller& caller, const std::string& workspace, const ExecRequest& request);
  ExecView get(const Caller& caller, base::ExecId id);
  // Newest first, those older than `before` (0: from the newest).
  struct ListWanted {
    std::optional<std::string> workspace{};  // unset: all that the caller can see
    bool running_only = false;
    base::ExecId before{};
    size_t limit = 1000;
  };
  std::vector<ExecView> list(const Caller& caller, const ListWanted& wanted);
  // Commands of a workspace, also a deleted one, oldest first: the last `limit` before `before`
  // (0: of all). Counts what the newest one left behind if that is quick to find out.
  struct History {
    state_db::WorkspaceRow workspace;
    std::vector<ExecView> execs;
    bool truncated = false;  // there are older ones
    uint64_t total = 0;      // of the workspace
  };
  History history(const Caller& caller, const std::string& workspace, base::ExecId before,
                  size_t limit);

  // The journal, read-only, for base::JournalReader; works long after the sandbox is gone.
  base::Fd open_journal(const Caller& caller, base::ExecId id);
  // Calls back (on the watcher's thread; must not block) whenever the journal grew or the exec
  // ended, until the subscription is dropped. May call spuriously.
  ExecWatcher::Subscription subscribe(base::ExecId id, std::function<void()> changed);
  // A message for a person waiting for output that is blocked; empty: no known obstacle.
  std::string output_obstacle() const;

  // Total bytes accepted; blocks while the command's pipe is full. offset = bytes sent before.
  backends::InputTaken send_input(const Caller& caller, base::ExecId id, uint64_t offset,
                                  std::string_view bytes, std::chrono::milliseconds deadline);
  uint64_t input_accepted(const Caller& caller, base::ExecId id);
  void check_input(const Caller& caller, base::ExecId id);  // before any input is accepted
  void close_input(const Caller& caller, base::ExecId id);
  void send_signal(const Caller& caller, base::ExecId id,
                   const std::string& name);  // "INT", "SIGINT", "2"
  // TERM, then KILL to everything it started after the grace period. Its record says who cancelled
  // it, and `because` of what.
  void cancel(const Caller& caller, base::ExecId id, const std::string& because = {});
  void resize(const Caller& caller, base::ExecId id, uint32_t columns, uint32_t rows);

 private:
  // Throws conflict (never stored) until the request that made it knows whether it starts.
  void require_launched(const Caller& caller, base::ExecId id);
  std::shared_ptr<void> mark_launching(base::ExecId id);
  std::shared_ptr<const LiveSandbox> sandbox_for(const state_db::WorkspaceRow& row,
                                                 const std::string& user);
  // The view of an earlier start with the same key.
  std::optional<ExecView> repeat(const Caller& caller, const state_db::NewExec& record);
  base::SnapshotId snapshot_before(const state_db::WorkspaceRow& row, bool frees,
                                   std::string& warning);
  struct Intent {
    state_db::ExecTable::Created created;
    std::shared_ptr<const LiveSandbox> running;
    base::Histogram::Clock::time_point began;
  };
  // Starts the sandbox if needed, and again if it is stopped meanwhile. `reads` spans the write.
  Intent record_intent(const Caller& caller, const state_db::WorkspaceRow& row,
                       state_db::NewExec& record, base::SnapshotId snapshot,
                       std::optional<state_db::GroupedReads>& reads);
  void launch(base::ExecId id, const state_db::WorkspaceRow& row, const LiveSandbox& running,
              const LaunchOptions& options);
  // nullopt: the sandbox is being stopped.
  std::optional<state_db::ExecTable::Created> create_record(const Caller& caller,
                                                            const state_db::WorkspaceRow& workspace,
                                                            const state_db::NewExec& record,
                                                            base::SnapshotId snapshot);
  // Cuts a command's time to what its workspace allows (state_db/tables/workspace_policy.h); throws
  // resource_exhausted if nothing is left.
  void apply_budget(const state_db::WorkspaceRow& row, state_db::NewExec& record);
  ExecView view(state_db::ExecRow row);
  // For an exec that is about to change: also keeps the lease from changing hands meanwhile.
  struct Held {
    state_db::ExecRow row;
    Leases::Writing writing;
  };
  Held hold(const Caller& caller, base::ExecId id);
  backends::InputTaken send(const state_db::ExecRow& row, uint64_t offset, std::string_view bytes,
                            std::chrono::milliseconds deadline);

  std::mutex mutex_;
  std::set<base::ExecId> launching_;
  Context& context_;
  Leases& leases_;
  SnapshotTaker& taker_;
  StartStop& start_stop_;
  Views& views_;
  DiskLimits& limits_;
  ExecWatcher& watcher_;
  ExecLauncher launcher_;
};

// The daemon died after writing its record and before starting the command.
bool never_started(const state_db::ExecRow& exec);

}  // namespace moorage::workspace
