// Mends workspaces behind READY: what a kill or a power cut left half-done in their files. Nothing
// that walks, writes or removes the files of one workspace runs before the daemon answers, so no
// workspace, whatever an agent made of it, keeps the daemon from starting.
// At start the reconciler adds what is to be done, an entry for each workspace, with one or more
// steps; it holds its workspace's lock from then on, so a verb on it waits, and a refusal says
// "mending". `start` works the entries off, one at a time, on a thread of its own. An entry that is
// not over within the deadline stays at work and keeps its lock, and the next one begins. A
// workspace that cannot be mended says so: its integrity is needs-repair, with the reason, until a
// later try succeeds; every start of it tries again.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/ids.h"
#include "base/keyed_mutex.h"
#include "base/thread_pool.h"
#include "workspace/context.h"

namespace moorage::workspace {

class Mender {
 public:
  using Step = std::function<void()>;

  explicit Mender(Context& context, std::chrono::milliseconds deadline = std::chrono::seconds(60));
  ~Mender();  // waits for what is at work
  Mender(const Mender&) = delete;
  Mender& operator=(const Mender&) = delete;

  // Before `start`; behind the steps that this workspace has already. Where a verb has its lock:
  // not added.
  void add(base::WorkspaceId workspace, Step step);
  // After all entries: what concerns no single workspace, or takes the locks itself.
  void add_last(Step step);
  void start();
  // False: it is still at work then.
  bool wait(std::chrono::milliseconds patience);
  // Begins nothing more; what has not begun is left for the next start. False: an entry is still at
  // work then, with all that it uses.
  bool stop(std::chrono::milliseconds patience);

 private:
  struct Entry {
    base::WorkspaceId workspace;
    std::shared_ptr<base::KeyedMutex::Guard> guard;
    std::vector<Step> steps;
  };
  struct Progress;
  void run();
  void mend(Entry entry);
  void write_outcome(base::WorkspaceId workspace, const Progress& progress,
                     const std::string& trouble);

  Context& context_;
  const std::chrono::milliseconds deadline_;
  std::deque<Entry> entries_;
  std::map<base::WorkspaceId, size_t> places_;  // in entries_, until `start`
  std::deque<Entry> last_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool done_ = false;
  size_t at_work_ = 0;  // entries, those past their deadline with them
  base::ThreadPool workers_;
  std::thread thread_;
};

// Says of a workspace that it cannot be mended, or that it is mended again.
void set_needs_repair(Context& context, base::WorkspaceId workspace, const std::string& reason);
void clear_needs_repair(Context& context, base::WorkspaceId workspace);

}  // namespace moorage::workspace
