// One exec that is watched: private to the two files of ExecWatcher (exec_watcher.h).
#pragma once

#include "workspace/exec_evidence.h"
#include "workspace/exec_watcher.h"

namespace moorage::workspace {

inline int whole_ms(std::chrono::steady_clock::duration duration) {
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(duration).count());
}

struct ExecWatcher::Watched {
  Watched(state_db::ExecRow r, base::Fd j, bool s, const Refusals& b)
      : row(std::move(r)), journal(std::move(j)), before(b), reader(journal.get()), sync(s) {}

  const state_db::ExecRow row;
  const base::Fd journal;
  const Refusals before;  // as it began
  std::mutex mutex;  // guards what follows; held while the journal is read and the end is written
  base::JournalReader reader;
  const bool sync;
  bool over = false;
  std::atomic<bool> told_unwritten{false};
  int watch = -1;
  std::atomic<uint64_t> output_bytes{0};
  std::atomic<int64_t> last_output_ms{0};
  std::optional<std::chrono::steady_clock::time_point> kill_at;  // guarded by ExecWatcher::mutex_
  struct Ended {
    state_db::ExecCategory category;
    std::string why;
  };
  std::optional<Ended> ended_by_us;  // the same
  std::string cancelled_because;     // guarded by ExecWatcher::mutex_; empty: it was not
};

}  // namespace moorage::workspace
