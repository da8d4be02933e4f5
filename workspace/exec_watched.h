// One exec that is watched: private to the two files of ExecWatcher (exec_watcher.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>

#include "base/clock.h"
#include "workspace/exec_evidence.h"
#include "workspace/exec_watcher.h"
#include "workspace/journal_middle.h"

namespace moorage::workspace {

inline int whole_ms(std::chrono::steady_clock::duration duration) {
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(duration).count());
}

// An exec is watched right after its row was made; later than this, a daemon before made it.
inline constexpr int64_t kAdoptedAfter_ms = 2'000;

struct ExecWatcher::Watched {
  // `limit`: what the journal may take of the disk.
  Watched(state_db::ExecRow r, base::Fd j, bool s, const Refusals& b, uint64_t limit)
      : row(without_words(std::move(r))),
        journal(std::move(j)),
        before(b),
        reader(journal.get()),
        middle(limit),
        sync(s) {}

  // They may take 1 MiB, and as many commands as there is room for run at once.
  static state_db::ExecRow without_words(state_db::ExecRow row) {
    row.request.argv.clear();
    row.request.environment.clear();
    return row;
  }

  const state_db::ExecRow row;  // without arguments and environment
  const base::Fd journal;
  const Refusals before;  // as it began
  std::mutex mutex;  // guards what follows; held while the journal is read and the end is written
  base::JournalReader reader;
  JournalMiddle middle;
  bool cutting = false;  // on a pool
  bool uncuttable = false;
  std::optional<base::Frame> held_end;  // it came during a cut: what is missing is told with it
  const bool sync;
  bool over = false;
  bool handled = false;  // over, and its outcome is written, or waits for more than the disk
  std::condition_variable handling;
  void set_handled() {
    const std::lock_guard lock(mutex);
    handled = true;
    handling.notify_all();
  }
  void wait_handled() {
    std::unique_lock lock(mutex);
    handling.wait(lock, [this] { return handled; });
  }
  std::atomic<bool> told_unwritten{false};
  int watch = -1;
  std::atomic<uint64_t> output_bytes{0};
  std::atomic<int64_t> last_output_ms{0};
  std::optional<std::chrono::steady_clock::time_point> kill_at;  // guarded by ExecWatcher::mutex_
  std::optional<std::chrono::steady_clock::time_point> give_up_at;  // the same; of a hook
  std::optional<Verdict> verdict;  // guarded by ExecWatcher::mutex_
  base::Share share() const {
    return {.user = row.request.owner_uid, .subject = row.request.workspace.str()};
  }
  // Set before others see it. The wall clock tells how long ago it began; it may be wrong by years.
  void set_began(const base::Clock& clock) {
    const int64_t now = clock.boot_ms();
    const int64_t ago = std::clamp<int64_t>(clock.wall_ms() - row.started_wall_ms, 0, now);
    began_boot_ms = now - ago;
    adopted = ago > kAdoptedAfter_ms;
  }
  // What it has taken of its workspace's time.
  int64_t ran_ms(const base::Clock& clock, int64_t ended_wall_ms) const {
    if (!row.request.hook.empty()) return 0;
    const int64_t ran = std::max<int64_t>(0, clock.boot_ms() - began_boot_ms);
    if (!adopted) return ran;
    // It may have ended while nobody looked.
    return std::clamp<int64_t>(ended_wall_ms - row.started_wall_ms, 0, ran);
  }
  uint64_t omitted_bytes() {
    const std::lock_guard lock(mutex);
    return uncuttable ? 0 : middle.dropped_bytes();
  }
  int64_t began_boot_ms = 0;
  bool adopted = false;
};

}  // namespace moorage::workspace
