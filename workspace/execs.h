// Verbs on execs. The record comes first (one commit, with the idempotency key), then the journal
// file outside the sandbox, then the warden is asked: a command runs once or not at all. The end is
// read from the journal by the watcher thread, so nothing depends on this daemon having been alive
// when it happened.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "workspace/context.h"
#include "workspace/exec_watcher.h"
#include "workspace/requests.h"
#include "workspace/workspaces.h"

namespace moorage::workspace {

struct ExecView {
  state_db::ExecRow row;
  uint64_t output_bytes = 0;             // so far, also while running
  int64_t last_output_ms = 0;            // wall time, 0: none
  std::optional<uint64_t> late_bytes{};  // written after its end; where the journal was read
  std::string warning;  // of a start alone: files not as left, no snapshot before it; empty: none
};

class Execs {
 public:
  Execs(Context& context, Workspaces& workspaces, Active& active, ExecWatcher& watcher)
      : context_(context), workspaces_(workspaces), active_(active), watcher_(watcher) {
    workspaces_.hooks().pre_stop = [this](const state_db::WorkspaceRow& row,
                                          const Running& running) {
      return begin_pre_stop(row, running);
    };
  }

  // Starts the sandbox if need be. The same key and request: the first run's view, nothing is run.
  // The same key for another request: already_exists.
  ExecView start(const Caller& caller, const std::string& workspace, const ExecRequest& request);
  ExecView get(const Caller& caller, base::ExecId id);
  // Newest first, those older than `before` (0: from the newest).
  struct ListWanted {
    std::optional<std::string> workspace{};  // unset: of all that the caller sees
    bool running_only = false;
    base::ExecId before{};
    size_t limit = 1000;
  };
  std::vector<ExecView> list(const Caller& caller, const ListWanted& wanted);
  // Commands of a workspace, also of a deleted one, oldest first: the last `limit` of those before
  // `before` (0: of all). What the newest one left is counted, if that can be had shortly.
  struct History {
    state_db::WorkspaceRow workspace;
    std::vector<ExecView> execs;
    bool truncated = false;  // there are older ones
  };
  History history(const Caller& caller, const std::string& workspace, base::ExecId before,
                  size_t limit);

  // The journal, read-only, for base::JournalReader; also long after the sandbox is gone.
  base::Fd open_journal(const Caller& caller, base::ExecId id);
  // Calls back (from the watcher's thread; must not block) whenever the journal grew or the exec
  // ended, until the subscription is dropped. May call spuriously.
  ExecWatcher::Subscription subscribe(base::ExecId id, std::function<void()> changed);
  // What keeps output from coming, for a person who waits for it; empty: nothing known.
  std::string output_obstacle() const;

  // Total bytes taken so far; blocks while the command's pipe is full. offset = bytes sent before.
  uint64_t send_input(const Caller& caller, base::ExecId id, uint64_t offset,
                      std::string_view bytes, std::chrono::milliseconds deadline);
  uint64_t input_accepted(const Caller& caller, base::ExecId id);
  void check_input(const Caller& caller, base::ExecId id);  // before any is taken
  void close_input(const Caller& caller, base::ExecId id);
  void send_signal(const Caller& caller, base::ExecId id,
                   const std::string& name);  // "INT", "SIGINT", "2"
  // TERM, after the grace KILL to all it started. Its record says who did it, and `because` of
  // what.
  void cancel(const Caller& caller, base::ExecId id, const std::string& because = {});
  void resize(const Caller& caller, base::ExecId id, uint32_t columns, uint32_t rows);

 private:
  // Conflict, which is not kept, while the request that made it does not know whether it starts.
  void require_launched(const Caller& caller, base::ExecId id);
  std::shared_ptr<void> mark_launching(base::ExecId id);
  std::shared_ptr<const Running> sandbox_for(const state_db::WorkspaceRow& row,
                                             const std::string& user);
  // Nothing: the sandbox is being stopped.
  std::optional<state_db::Execs::Created> record_intent(const Caller& caller,
                                                        const state_db::WorkspaceRow& workspace,
                                                        const state_db::ExecRequest& record,
                                                        base::SnapshotId snapshot);
  // exec_hook.cc
  state_db::ExecRow begin_pre_stop(const state_db::WorkspaceRow& row, const Running& running);
  // exec_budget.cc. Cuts the time of a command to what its workspace allows; resource_exhausted:
  // nothing is left.
  void apply_budget(const state_db::WorkspaceRow& row, state_db::ExecRequest& record);
  void launch(const state_db::ExecRow& exec, const ExecRequest& request,
              const state_db::WorkspaceRow& workspace, const Running& running);
  void end_softly(base::ExecId id, const Running& running);
  void settle_failed_launch(const state_db::ExecRow& exec, const Running& running,
                            const base::Error& error);
  ExecView view(state_db::ExecRow row);
  // Of one that is to be changed: with what keeps the lease from changing hands meanwhile.
  struct Held {
    state_db::ExecRow row;
    Leases::Writing writing;
  };
  Held hold(const Caller& caller, base::ExecId id);
  uint64_t send(const state_db::ExecRow& row, uint64_t offset, std::string_view bytes,
                std::chrono::milliseconds deadline);
  std::shared_ptr<const Running> sandbox_of(const state_db::ExecRow& row);

  std::mutex mutex_;
  std::set<base::ExecId> launching_;
  Context& context_;
  Workspaces& workspaces_;
  Active& active_;
  ExecWatcher& watcher_;
};

// Its record was there, and the daemon died before the command was.
bool never_started(const state_db::ExecRow& exec);

}  // namespace moorage::workspace
