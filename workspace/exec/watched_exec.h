// One watched exec: private to the files of ExecWatcher (watcher.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>

#include "base/clock.h"
#include "base/wire/journal_middle.h"
#include "workspace/exec/watcher.h"

namespace moorage::workspace {

// All that is known of an end, kept until it is written.
struct ExecWatcher::End {
  state_db::ExecOutcome record;
  ExecEvidence evidence;
};

inline int whole_ms(std::chrono::steady_clock::duration duration) {
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(duration).count());
}

// We watch an exec right after making its row; a longer gap means an earlier daemon started it.
inline constexpr int64_t kAdoptedAfter_ms = 2'000;

struct ExecWatcher::Watched {
  // `limit`: the most disk space, in bytes, that the journal may take.
  Watched(state_db::ExecRow r, base::Fd j, bool s, const Refusals& b, uint64_t limit)
      : row(without_words(std::move(r))),
        journal(std::move(j)),
        before(b),
        reader(journal.get()),
        middle(limit),
        sync(s) {}

  // Drops arguments and environment: they may take 1 MiB for each of many running commands.
  static state_db::ExecRow without_words(state_db::ExecRow row) {
    row.request.argv.clear();
    row.request.environment.clear();
    return row;
  }

  const state_db::ExecRow row;  // without arguments and environment
  const base::Fd journal;
  const Refusals before;  // when it began
  std::mutex mutex;  // guards the members below; held while reading the journal, writing the end
  base::JournalReader reader;
  base::JournalMiddle middle;
  bool cutting = false;  // on a pool
  bool uncuttable = false;
  std::optional<base::Frame> held_end;  // arrived during a cut; waits so that it counts the bytes
  const bool sync;
  bool over = false;
  bool handled = false;  // over; its outcome is written, or left to a sync, a listener, the disk
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
  std::optional<std::chrono::steady_clock::time_point> give_up_at;  // same lock; for a hook
  std::optional<ExecVerdict> verdict;  // guarded by ExecWatcher::mutex_
  base::Share share() const {
    return {.user = row.request.owner_uid, .subject = row.request.workspace.str()};
  }
  // Set before others see it. The age comes from the wall clock, which may be wrong by years.
  void set_began(const base::Clock& clock) {
    const int64_t now = clock.boot_ms();
    const int64_t ago = std::clamp<int64_t>(clock.wall_ms() - row.started_wall_ms, 0, now);
    began_boot_ms = now - ago;
    adopted = ago > kAdoptedAfter_ms;
  }
  // How much of its workspace's command time it has used.
  int64_t ran_ms(const base::Clock& clock, int64_t ended_wall_ms) const {
    if (!row.request.hook.empty()) return 0;
    const int64_t ran = std::max<int64_t>(0, clock.boot_ms() - began_boot_ms);
    if (!adopted) return ran;
    // It may have ended while no daemon was running.
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
