// Repairs workspaces after READY: whatever a kill or a power cut left half done in their files. The
// daemon answers before any walk, write or removal in the files of a single workspace, so no
// workspace, whatever an agent made of it, keeps the daemon from starting.
// At start the reconciler adds an entry for each workspace to repair, with one or more steps; it
// holds its workspace's lock from then on, so a verb on it waits, and a refusal says "repair".
// `start` runs the entries one at a time on its own thread. An entry that is not done within the
// deadline keeps running and keeps its lock, and the next one begins. If a repair fails, the
// workspace's integrity is needs-repair, with the reason, until a later attempt succeeds; every
// start of the workspace tries again.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/fair_pool.h"
#include "base/ids.h"
#include "base/keyed_mutex.h"
#include "base/thread_pool.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

class Repairs {
 public:
  using Step = std::function<void()>;

  explicit Repairs(Context& context, std::chrono::milliseconds deadline = std::chrono::seconds(60))
      : context_(context),
        deadline_(deadline),
        workers_(kWorkers, std::numeric_limits<size_t>::max()) {}
  ~Repairs();  // waits for running entries
  Repairs(const Repairs&) = delete;
  Repairs& operator=(const Repairs&) = delete;

  // Call before `start`; appends to the workspace's steps. Skips a workspace whose lock a verb
  // holds.
  void add(base::WorkspaceId workspace, Step step);
  // Runs after all entries: for steps that concern several workspaces, or take locks themselves.
  void add_last(Step step);
  void start();
  // False: still running after `patience`.
  bool wait(std::chrono::milliseconds patience);
  // Begins no more entries; the next start of the daemon handles the rest. False: an entry is still
  // running, with everything that it uses.
  bool stop(std::chrono::milliseconds patience);

 private:
  struct Entry {
    base::WorkspaceId workspace;
    std::shared_ptr<base::KeyedMutex::Guard> guard;
    std::vector<Step> steps;
  };
  // This many may hang past their deadlines before the others have to wait for one of them.
  static constexpr size_t kWorkers = 8;
  struct Progress;
  void run();
  void mend(Entry entry);
  void write_outcome(base::WorkspaceId workspace, const Progress& progress,
                     const std::string& trouble);

  Context& context_;
  const std::chrono::milliseconds deadline_;
  std::deque<Entry> entries_;
  std::map<base::WorkspaceId, size_t> places_;  // positions in entries_, until `start`
  std::deque<Entry> last_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool done_ = false;
  size_t at_work_ = 0;  // running entries, including those past their deadline
  base::ThreadPool workers_;
  std::thread thread_;
};

// The steps of a reconciler's round on single workspaces and sandboxes: they run in parallel, each
// user with a share of the threads (base/fair_pool.h). The round waits briefly, so that usually
// they are done when it ends. A step that hangs, because an engine is down or a process is
// unkillable, continues alone: it delays neither the round nor other steps, and its subject gets no
// further step until it ends.
class RoundWork {
 public:
  explicit RoundWork(std::chrono::milliseconds patience)
      : patience_(patience), pool_(kThreads, std::numeric_limits<size_t>::max()) {}

  // `share.subject` names the subject. An error is logged as `event` and left to the next round.
  void begin(const base::Share& share, const char* event, std::function<void()> step);
  // Waits for the steps begun since the last call, up to the patience.
  void wait();

 private:
  static constexpr size_t kThreads = 8;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::set<std::string> at_work_;
  std::set<std::string> waited_for_;
  base::FairPool pool_;  // last: its work uses the members above
};

}  // namespace moorage::workspace
