// One thread that sees execs and sandboxes end: inotify on the journals of running execs, a pidfd
// for each sandbox's init. At an `end` frame the exec's outcome is written, on a pool. The
// death of an init goes to `on_death`, on another pool; its handler calls `settle`, which marks
// execs without an `end` as interrupted. Each pool is shared fairly (base/fair_pool.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/fair_pool.h"
#include "base/fd.h"
#include "base/journal.h"
#include "state_db/execs.h"
#include "workspace/active.h"
#include "workspace/context.h"
#include "workspace/exec_evidence.h"
#include "workspace/exec_verdict.h"

namespace moorage::workspace {

class ExecWatcher {
 public:
  using Callback = std::function<void()>;
  class Subscription {
   public:
    Subscription() = default;
    Subscription(ExecWatcher* owner, base::ExecId exec, uint64_t number)
        : owner_(owner), exec_(exec), number_(number) {}
    Subscription(Subscription&& other) noexcept;
    Subscription& operator=(Subscription&& other) noexcept;
    ~Subscription();

   private:
    ExecWatcher* owner_ = nullptr;
    base::ExecId exec_;
    uint64_t number_ = 0;
  };
  struct Progress {
    uint64_t output_bytes = 0;
    int64_t last_output_ms = 0;
  };
  ExecWatcher(Context& context, Active& active);
  ~ExecWatcher();

  // Set once before anything is watched; called on the watcher's pool: may block, must not throw.
  void on_end(std::function<void(const state_db::ExecRow&)> callback);
  void ask_of_disk(ExecDiskJudge judge) { disk_judge_ = std::move(judge); }
  // False: somebody is at work on it; called again a second later.
  void on_death(std::function<bool(base::WorkspaceId, base::SandboxId)> callback);
  // The exec has a journal file. `sync`: sync the workspace before its end is written. `before`:
  // what was refused to its sandbox until now.
  void watch_exec(const state_db::ExecRow& exec, bool sync, const Refusals& before = {});
  void watch_sandbox(const Running& running);
  // No pidfd event any more for this sandbox: its stop is being done by a verb.
  void forget_sandbox(base::SandboxId sandbox);
  // Reads the journals of this sandbox's running execs to their end and settles them all.
  void settle(base::SandboxId sandbox, const std::string& why_interrupted);
  // The same for one exec, watched or not: one whose start failed, or of before a crash.
  void settle_exec(const state_db::ExecRow& exec, state_db::ExecCategory category,
                   const std::string& why_interrupted);
  using Verdict = ExecVerdict;
  // Kills all that the exec started, now. False: it is not watched any more, or has a verdict.
  bool end_because(base::ExecId exec, const Verdict& verdict);
  // Of the commands of this sandbox that run now; with a grace they are killed after it.
  void end_all(base::SandboxId sandbox, const Verdict& verdict,
               std::optional<std::chrono::milliseconds> grace);
  // Of the commands that run in a workspace now, hooks left out.
  struct RunningTime {
    size_t execs = 0;
    int64_t ms = 0;
  };
  RunningTime running_time(base::WorkspaceId workspace);
  void kill_after(base::ExecId exec, std::chrono::milliseconds grace);  // if it still runs then
  std::optional<Progress> progress(base::ExecId exec);  // nothing when it is not watched any more
  Subscription subscribe(base::ExecId exec, Callback callback);

 private:
  struct Watched;
  using WatchedPtr = std::shared_ptr<Watched>;
  void run();
  void handle_inotify();
  void handle_death(base::SandboxId sandbox);
  int watch_journal(const std::string& path);
  void tell_death(const Running& dead);
  int tell_deaths();     // again, to those who were at work on it; ms until the next time, -1: none
  int poll_unwatched();  // the same for the next look at journals without a watch
  int kill_overdue();    // the same for the next kill, and for ends that nobody reported
  int write_overdue();   // the same for outcomes that the database did not take yet
  enum class Ends { here, on_pool };
  bool read_journal(const WatchedPtr& watched, Ends ends);  // in turns; true if more is there
  uint64_t journal_limit(base::WorkspaceId workspace);      // of one of its commands, now
  void cut_middle(const WatchedPtr& watched, uint64_t limit_bytes);  // its mutex is held
  void end(const WatchedPtr& watched, const base::Frame& frame);
  void interrupt(const WatchedPtr& watched, state_db::ExecCategory category,
                 const std::string& why);
  void finish_end(const WatchedPtr& watched, state_db::ExecOutcome outcome);
  void write_outcome(const WatchedPtr& watched, state_db::ExecOutcome outcome);
  void keep_unwritten(const WatchedPtr& watched, state_db::ExecOutcome outcome,
                      const base::Error& error);
  void kill_group(const Watched& watched);
  enum class Applied { nothing, reason, with_state };
  Applied apply_verdict(const Watched& watched, state_db::ExecOutcome& outcome);
  // What is known about why. Removes its group, or ends a bomb that it left.
  ExecEvidence look_at_end(const Watched& watched, const state_db::ExecOutcome& outcome);
  bool is_at_limit(base::WorkspaceId workspace);
  bool is_stopping(base::SandboxId sandbox);
  void end_bomb(const Watched& watched, backends::ExecGroup& group);
  void notify(base::ExecId exec);
  void unsubscribe(base::ExecId exec, uint64_t number);
  void wake();
  Context& context_;
  Active& active_;
  base::Fd inotify_;  // none, while root has no instance left
  base::Fd epoll_;
  base::Fd wake_;
  std::mutex mutex_;  // guards the maps below, never held while a journal is read
  std::map<base::ExecId, WatchedPtr> execs_;
  std::map<int, base::ExecId> by_watch_;
  // By the sandbox, not by the descriptor: an event may come after its number was given anew.
  std::map<base::SandboxId, std::pair<base::Fd, Running>> inits_;  // without mounts
  std::set<base::ExecId> more_;  // journals with bytes left from the last turn
  std::vector<std::pair<WatchedPtr, state_db::ExecOutcome>> unwritten_;
  std::chrono::steady_clock::time_point next_write_{};
  std::vector<Running> untold_;
  std::chrono::steady_clock::time_point next_telling_{};
  bool stopping_ = false;
  std::mutex subscribers_mutex_;  // held while callbacks run: after unsubscribe none comes
  std::map<base::ExecId, std::map<uint64_t, Callback>> subscribers_;
  uint64_t next_subscription_ = 1;
  std::function<void(const state_db::ExecRow&)> on_end_;
  ExecDiskJudge disk_judge_;
  std::function<bool(base::WorkspaceId, base::SandboxId)> on_death_;
  base::FairPool pool_;  // may wait for workspaces and their files
  base::FairPool ends_;  // waits for the disk alone: `settle`, on the other one, waits for it
  std::thread thread_;
};

std::string journal_directory(const Options& options, base::WorkspaceId workspace, base::ExecId ex);

}  // namespace moorage::workspace
