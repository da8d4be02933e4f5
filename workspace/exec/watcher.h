// One thread that notices when execs and sandboxes end: inotify on the journals of running execs,
// and a pidfd for each sandbox's init. An `end` frame writes the exec's outcome, on one pool.
// Another pool reports ends and deaths to the listeners; who hears of a death calls `settle`, which
// marks execs without an `end` as interrupted. Each pool is shared fairly (base/fair_pool.h). The
// end of a command on another machine waits until its files are here (workspace/remote).
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
#include "base/os/fd.h"
#include "base/wire/journal.h"
#include "state_db/tables/execs.h"
#include "workspace/context/context.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/exec/decide_end.h"
#include "workspace/exec/listener.h"
#include "workspace/remote/incoming_packs.h"

namespace moorage::workspace {

class ExecWatcher {
 public:
  using Callback = std::function<void()>;
  using Subscription = std::shared_ptr<void>;  // no callback runs after its end
  struct Progress {
    uint64_t output_bytes = 0;
    int64_t last_output_ms = 0;
  };
  ExecWatcher(Context& context, IncomingPacks& incoming);
  ~ExecWatcher();
  // Reads no more journals, before listeners go: the next daemon finds later ends there.
  void stop();

  [[nodiscard]] ExecListeners::Handle listen(ExecListener& listener) {
    return listeners_.add(listener);
  }
  // The exec must have a journal file. `sync`: sync the workspace before writing its end.
  // `before`: the refusals counted for its sandbox so far.
  void watch_exec(const state_db::ExecRow& exec, bool sync, const Refusals& before = {});
  void watch_sandbox(const LiveSandbox& running);
  // Drops the pidfd of this sandbox: a verb is stopping it.
  void forget_sandbox(base::SandboxId sandbox);
  // Reads the journals of this sandbox's running execs to their end and settles them all.
  void settle(base::SandboxId sandbox, const std::string& why_interrupted);
  // The same for one exec, watched or not: its start failed, or it predates a crash.
  void settle_exec(const state_db::ExecRow& exec, state_db::ExecCategory category,
                   const std::string& why_interrupted);
  // Kills everything the exec started. False: it is no longer watched, or already has a verdict.
  bool end_because(base::ExecId exec, const ExecVerdict& verdict);
  // For all commands running in this sandbox; with a grace period, the kill comes after it.
  void end_all(base::SandboxId sandbox, const ExecVerdict& verdict,
               std::optional<std::chrono::milliseconds> grace);
  // For the commands running in a workspace now, without hooks.
  struct RunningTime {
    size_t execs = 0;
    int64_t ms = 0;
  };
  RunningTime running_time(base::WorkspaceId workspace);
  void kill_after(base::ExecId exec, std::chrono::milliseconds grace);  // if it still runs then
  std::optional<Progress> progress(base::ExecId exec);  // nullopt: it is no longer watched
  Subscription subscribe(base::ExecId exec, Callback callback);
  void wake_readers(base::ExecId exec);  // calls its subscriptions
  // A command whose warden has not said yet whether it started: an adopted one, or its start got no
  // answer. The reconciler takes them all and asks.
  struct Unconfirmed {
    state_db::ExecRow exec;
    std::string why;  // reason to record if it never started
  };
  void add_unconfirmed(const state_db::ExecRow& exec, const std::string& why);
  std::vector<Unconfirmed> take_unconfirmed();

 private:
  struct Watched;
  struct End;
  using WatchedPtr = std::shared_ptr<Watched>;
  void run();
  void handle_inotify();
  void handle_death(base::SandboxId sandbox);
  int watch_journal(const std::string& path);
  void report_death(const LiveSandbox& dead);
  int poll_unwatched();  // journals without a watch; ms until the next poll, -1: none
  int kill_overdue();    // likewise for the next kill, and for ends that nobody reported
  int retry_overdue();   // likewise for deaths that met a busy workspace, and unwritten outcomes
  void retry_in(std::chrono::milliseconds pause, const base::Share& share,
                std::function<void()> work);  // on pool_
  enum class Ends { here, on_pool };
  bool read_journal(const WatchedPtr& watched, Ends ends);  // one turn; true if more is left
  uint64_t journal_limit(base::WorkspaceId workspace);      // for each of its commands, now
  void cut_middle(const WatchedPtr& watched, uint64_t limit_bytes);  // caller holds its mutex
  void read_to_end(const WatchedPtr& watched, state_db::ExecCategory category,
                   const std::string& why_interrupted);
  void end(const WatchedPtr& watched, const base::Frame& frame);
  void end_here(const WatchedPtr& watched, const base::Frame& frame);
  void distrust(const WatchedPtr& watched, const std::string& why);
  void interrupt(const WatchedPtr& watched, state_db::ExecCategory category,
                 const std::string& why);
  void record(const WatchedPtr& watched, End end);
  void keep_unwritten(const WatchedPtr& watched, End end, const base::Error& error);
  std::optional<ExecVerdict> verdict_on(const Watched& watched);
  void unwatch(const Watched& watched);
  void kill_group(const Watched& watched);
  void unsubscribe(base::ExecId exec, uint64_t number);
  void wake();
  Context& context_;
  IncomingPacks& incoming_;
  base::Fd inotify_;  // empty while root has no inotify instance left
  base::Fd epoll_;
  base::Fd wake_;
  std::mutex mutex_;  // guards the maps below; never held while reading a journal
  std::map<base::ExecId, WatchedPtr> execs_;
  std::map<int, base::ExecId> by_watch_;
  // Keyed by sandbox, not by descriptor: an event may arrive after its number was reused.
  std::map<base::SandboxId, std::pair<base::Fd, LiveSandbox>> inits_;  // without mounts
  std::set<base::ExecId> more_;  // journals with bytes left from the last turn
  struct Retry {
    std::chrono::steady_clock::time_point at;
    base::Share share;
    std::function<void()> work;
  };
  std::vector<Retry> retries_;
  std::vector<Unconfirmed> unconfirmed_;
  bool stopping_ = false;
  std::mutex subscribers_mutex_;  // held during callbacks: none runs after unsubscribe
  std::map<base::ExecId, std::map<uint64_t, Callback>> subscribers_;
  uint64_t next_subscription_ = 1;
  ExecListeners listeners_;
  base::FairPool pool_;  // may wait for workspaces and their files
  base::FairPool ends_;  // waits only for the disk: `settle`, on pool_, waits for it
  std::thread thread_;
};

}  // namespace moorage::workspace
