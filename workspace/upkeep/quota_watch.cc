#include "workspace/upkeep/quota_watch.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/os/written_bytes.h"
#include "state_db/store.h"
#include "workspace/context/disk_use.h"
#include "workspace/context/metrics.h"

namespace moorage::workspace {
namespace {

using std::chrono::milliseconds;

// Longer than a sandbox start with the usual deadline.
constexpr std::chrono::seconds kExpected{30};
constexpr std::chrono::seconds kAgain{1};
// One user gets at most half of them (base/fair_pool.h).
constexpr size_t kWalkers = 6;
constexpr size_t kFrozenWalkers = 2;
// Written this far beyond the limit: walk at once, ignoring the share of time.
constexpr uint64_t kUrgentBytes = 16 << 20;
// Faster than anything writes to files (4.3 GB/s by one dd, measured), so the next check comes
// before the limit is reached, or after the shortest pause.
constexpr uint64_t kFastest = 5'000'000'000;
constexpr milliseconds kShortestPause{5};
constexpr milliseconds kIdlePause{20};
constexpr milliseconds kLongestPause{1'000};
// A walk this quick runs at the end of every command near the limit.
constexpr milliseconds kQuickWalk{10};
// How long to wait until killed processes are gone.
constexpr milliseconds kDeath{500};
// For a command that ends right after the walk that found its writes.
constexpr milliseconds kClaimedWithin{300};
// Processor time; less means a sleeper that was only frozen for a walk or answered a request.
constexpr uint64_t kAwakeUsec = 200;
constexpr const char* kUncounted =
    "it has too many files to count, or they move during the count, so it counts as over";

milliseconds pause_at(double fullness) {
  if (fullness > 0.8) return milliseconds(1'000);
  return milliseconds(fullness > 0.5 ? 3'000 : 10'000);
}

}  // namespace

QuotaWatch::QuotaWatch(Context& context, ExecWatcher& watcher, StartStop& start_stop)
    : context_(context),
      watcher_(watcher),
      start_stop_(start_stop),
      free_space_(context.options.store),
      countless_(context.store.clock()),
      frozen_walks_(kFrozenWalkers, attempting(&QuotaWatch::measure_frozen),
                    base::SingleFlight::Fair{}),
      walks_(kWalkers, attempting(&QuotaWatch::walk), base::SingleFlight::Fair{}),
      listens_(watcher.listen(*this)) {}

std::function<void(int64_t)> QuotaWatch::attempting(void (QuotaWatch::*work)(base::WorkspaceId)) {
  return [this, work](int64_t key) {
    try {
      (this->*work)(base::WorkspaceId{key});
    } catch (const Error& error) {  // the workspace may vanish during the walk
      base::log(base::LogLevel::warning, "workspace.quota",
                {{"ws", base::WorkspaceId{key}}, {"error", error.message()}});
    }
  };
}

// Sandboxes of the previous daemon are about to be adopted, and their commands never stopped.
QuotaWatch::Work::Work(QuotaWatch& watch) : watch_(watch) {
  watch_.expect_command();
  thread_ = std::thread([this] { run(); });
}

QuotaWatch::Work::~Work() {
  {
    const std::lock_guard lock(watch_.mutex_);
    ending_ = true;
  }
  watch_.awaited_.notify_all();
  thread_.join();
}

void QuotaWatch::Work::run() {
  std::unique_lock lock(watch_.mutex_);
  while (!ending_) {
    const auto expected = watch_.expects_until_;
    lock.unlock();
    const auto next = watch_.look();
    lock.lock();
    watch_.awaited_.wait_until(lock, next,
                               [&] { return ending_ || watch_.expects_until_ != expected; });
  }
}

void QuotaWatch::expect_command() {
  const auto until = Clock::now() + kExpected;
  const std::lock_guard lock(mutex_);
  if (until < expects_until_ + kAgain) return;
  expects_until_ = until;
  awaited_.notify_all();
}

QuotaWatch::Clock::time_point QuotaWatch::look() {
  const auto now = Clock::now();
  auto next = now + kIdlePause;  // a sandbox may start meanwhile and write
  free_space_.look();
  std::map<base::WorkspaceId, bool> live;
  for (const auto& running : context_.live.all()) {
    live[running.workspace] = true;
    try {
      next = std::min(next, look_at(running));
    } catch (const Error& error) {
      base::log(base::LogLevel::warning, "workspace.quota",
                {{"ws", running.workspace}, {"error", error.message()}});
    }
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(seen_, [&](const auto& seen) {
    return !live.contains(seen.first) && !seen.second.uploaded && now > seen.second.next_look;
  });
  if (live.empty() && now >= expects_until_) return now + kLongestPause;
  return std::max(next, Clock::now() + kShortestPause);
}

// For a sandbox not checked before: starts from the last measurement.
QuotaWatch::Seen QuotaWatch::first_of(const state_db::WorkspaceRow& row,
                                      const LiveSandbox& running) {
  Seen seen;
  seen.sandbox = running.sandbox;
  seen.use = {row.disk_bytes.value_or(0), row.disk_files};
  seen.space = free_space_.look();
  // Do not blame this sandbox for an earlier excess.
  if (is_over(seen.use, limit_of(row))) seen.over = seen.use;
  return seen;
}

// Catches empty files, allocation without writing pages, and growth after an agent removed files.
bool QuotaWatch::may_have_moved(const LiveSandbox& running, const layers::QuotaLimit& limit,
                                const Seen& seen) {
  const SpaceMoves::Sums space = free_space_.look();
  if (seen.over && has_grown(space.gained, seen.space.gained)) return true;
  const layers::QuotaUse most = plus(seen.use, minus(space.lost, seen.space.lost));
  if (!is_over(most, limit) || (seen.over && !has_grown(most, seen.use))) return false;
  return running.backend->inspect(running.name).cpu_usec > seen.writes.cpu_usec + kAwakeUsec;
}

QuotaWatch::Clock::time_point QuotaWatch::look_at(const LiveSandbox& running) {
  const auto now = Clock::now();
  Seen seen;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = seen_.find(running.workspace); found != seen_.end())
      seen = found->second;
  }
  if (seen.sandbox == running.sandbox && now < seen.next_look) return seen.next_look;
  const auto row = state_db::WorkspaceTable(context_.store).find(running.workspace);
  if (!row || !row->layer || !limit_of(*row).any()) return now + kLongestPause;
  if (seen.sandbox != running.sandbox) seen = first_of(*row, running);
  const layers::QuotaLimit limit = limit_of(*row);
  const uint64_t all = bytes_written_in(running);
  const uint64_t since = minus(all, seen.writes.all);
  const bool writes = all != seen.last_all;
  bool due = !seen.walked && now >= seen.next_walk;
  milliseconds pause = kLongestPause;
  if (limit.bytes > 0) {
    const uint64_t room = minus(limit.bytes, seen.use.bytes);
    due = due || (since > room && now >= seen.next_walk && (!seen.over || since > kSlackBytes)) ||
          since > room + kUrgentBytes;
    const auto left = milliseconds(minus(room, since) * 1000 / kFastest);
    pause = std::clamp(left, writes ? kShortestPause : kIdlePause, kLongestPause);
  }
  due = due || (now >= seen.next_walk && may_have_moved(running, limit, seen));
  // Catches space taken while others freed as much.
  due = due || (now >= seen.next_quiet_walk &&
                (writes || seen.over || now >= seen.next_quiet_walk + milliseconds(10'000)));
  if (due) walks_.request(row->id.value, row->owner_uid);
  const std::lock_guard lock(mutex_);
  Seen& known = seen_[running.workspace];
  if (known.sandbox != running.sandbox) {
    // Earlier uploads count until they are measured.
    if (known.uploaded) seen.use = known.use;
    seen.uploaded = known.uploaded;
    known = seen;
  }
  known.last_all = all;
  known.next_look = now + pause;
  return known.next_look;
}

void QuotaWatch::walk(base::WorkspaceId id) {
  const auto running = context_.live.without_mounts(id);
  const auto row = state_db::WorkspaceTable(context_.store).find(id);
  if (!running || !row || !row->layer || !limit_of(*row).any()) return;
  Seen seen;
  {
    const std::lock_guard lock(mutex_);
    const auto found = seen_.find(id);
    const bool known = found != seen_.end() && found->second.sandbox == running->sandbox;
    seen = known ? found->second : first_of(*row, *running);
  }
  const Seen before = seen;
  const auto began = Clock::now();
  seen.writes = writes_in(*running);  // writes during the walk may count twice
  seen.space = free_space_.look();
  const auto count = measure(*row, &*running, seen.writes);
  if (!count) return;
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - began);
  if (!count->complete && is_below(*row, before, seen)) {
    seen = before;  // keep the last count and add later writes to it
  } else {
    if (count->complete) hold_to_rest(*row, seen);
    seen.use = count->use;
    seen.walked = seen.walked || count->complete;
    seen.uncounted = !count->complete;
  }
  seen.took = took;
  seen.next_walk = Clock::now() + took * kShare;
  const auto quiet = std::max(pause_at(fullness(seen.use, limit_of(*row))), took * kShare);
  seen.next_quiet_walk = Clock::now() + quiet;
  if (!count->lower_bound || is_over(seen.use, limit_of(*row))) judge(*row, *running, before, seen);
  const std::lock_guard lock(mutex_);
  Seen& known = seen_[id];
  seen.last_all = known.last_all;
  seen.ending = known.ending;
  // An end may have been claimed meanwhile; otherwise keep waiting until the earlier deadline.
  if (seen.unclaimed_until == before.unclaimed_until) seen.unclaimed_until = known.unclaimed_until;
  seen.next_look = Clock::now() + kShortestPause;
  known = seen;
}

// The use beside the writable layer changes during writes: a snapshot is dropped, or a shared
// frozen layer becomes its own when the workspace that shared it is purged.
void QuotaWatch::hold_to_rest(const state_db::WorkspaceRow& row, Seen& seen) {
  const layers::QuotaLimit left = DiskUse(context_).limit_of_writable(row, row.layer);
  const bool changed = left.bytes != seen.left.bytes || left.files != seen.left.files;
  if (seen.walked && changed)
    context_.storage.quota().limit(row.layer, context_.storage.layer_path(row.layer), left);
  seen.left = left;
}

void QuotaWatch::judge(const state_db::WorkspaceRow& row, const LiveSandbox& running,
                       const Seen& before, Seen& seen) {
  const layers::QuotaLimit limit = limit_of(row);
  if (!is_over(seen.use, limit)) {
    seen.over.reset();
    return;
  }
  const bool grown = seen.uncounted ? has_taken(before, seen, limit)
                                    : !seen.over || has_grown(seen.use, *seen.over);
  if (!seen.over || seen.use.bytes < seen.over->bytes) seen.over = seen.use;
  if (!grown) return;
  seen.over = seen.use;
  const std::string what = seen.uncounted ? kUncounted : text_of(seen.use, limit);
  seen.told = row.name + " is over its disk limit (" + what +
              "): remove files, or raise it: " + "moorage set " + row.name +
              " --disk SIZE --disk-files N";
  end_writers(row, running, before, seen);
}

// Ends those that wrote since the previous walk; if the space grew by more than the pages written,
// ends all that did anything.
void QuotaWatch::end_writers(const state_db::WorkspaceRow& row, const LiveSandbox& running,
                             const Seen& before, Seen& seen) {
  // Read now: writes during the walk may be in its result.
  const SandboxWrites writes = writes_in(running);
  const uint64_t written = minus(writes.all, before.writes.all);
  const uint64_t grown =
      before.walked && !seen.uncounted ? minus(seen.use.bytes, before.use.bytes) : 0;
  const bool pages = written > kSlackBytes && grown <= written + kMostOver;
  const auto execs = state_db::ExecTable(context_.store).running(running.sandbox);
  const auto wrote = [&](base::ExecId exec, const SandboxWrites::Done& now) {
    const auto known = before.writes.by_exec.find(exec);
    const auto then = known == before.writes.by_exec.end() ? SandboxWrites::Done{} : known->second;
    if (!pages) return now.cpu_usec == 0 || now.cpu_usec > then.cpu_usec + kAwakeUsec;
    return minus(now.bytes, then.bytes) > kSlackBytes;
  };
  const bool gone = minus(writes.ended, before.writes.ended) > kSlackBytes;
  std::vector<base::ExecId> killed;
  bool any = false;
  for (const auto& [exec, now] : writes.by_exec) {
    if (seen.ending.contains(exec) || !wrote(exec, now)) continue;
    if (!pages && !seen.ending.empty()) continue;
    any = true;
    const bool again = seen.ended.contains(exec);
    seen.ended[exec] = seen.told;  // also for an exec that ends by itself right now
    if (watcher_.end_because(exec, {{}, state_db::ExecCategory::disk_quota, seen.told})) {
      context_.metrics.ended_for_quota.add();
      killed.push_back(exec);
    } else if (!execs.empty() || again) {  // the exec ended and left this process running
      running.backend->exec_group(running.name, exec.str())->kill();
    } else {
      start_stop_.stop_because(row.id, seen.told);
    }
  }
  // The writer has ended or is about to; it gets the reason at its end.
  const bool ended = !any && (gone || !execs.empty() || !seen.ending.empty());
  measure_dead(row, running, killed, seen);
  if (ended) {
    seen.unclaimed_until = Clock::now() + kClaimedWithin;
    const auto newest = state_db::ExecTable(context_.store).list({.workspace = row.id, .limit = 1});
    seen.unclaimed_newest = newest.empty() ? base::ExecId{} : newest.front().id;
  }
  if (!any && !ended) start_stop_.stop_because(row.id, seen.told);
  context_.store.add_event("workspace.disk_quota",
                           {.workspace = row.id, .sandbox = running.sandbox}, seen.told);
}

// Charge the space that they took until their death to them, not to their successors.
void QuotaWatch::measure_dead(const state_db::WorkspaceRow& row, const LiveSandbox& running,
                              const std::vector<base::ExecId>& killed, Seen& seen) {
  if (killed.empty()) return;
  const auto until = Clock::now() + kDeath;
  for (const auto exec : killed) {
    const auto group = running.backend->exec_group(running.name, exec.str());
    while (!group->empty() && Clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
  }
  seen.writes = writes_in(running);
  seen.space = free_space_.look();
  if (seen.uncounted) return;
  const auto count = measure(row, &running, seen.writes);
  if (count && count->complete) seen.use = count->use;
  if (is_over(seen.use, limit_of(row))) seen.over = seen.use;
}

bool QuotaWatch::suspects_disk(const state_db::ExecRow& ended) {
  const auto running = context_.live.without_mounts(ended.request.workspace);
  const auto row = state_db::WorkspaceTable(context_.store).find(ended.request.workspace);
  if (!running || !row || !limit_of(*row).any()) return false;
  const layers::QuotaLimit limit = limit_of(*row);
  const std::lock_guard lock(mutex_);
  const auto found = seen_.find(row->id);
  const bool known = found != seen_.end() && found->second.sandbox == running->sandbox;
  const Seen seen = known ? found->second : first_of(*row, *running);
  if (Clock::now() < seen.unclaimed_until || seen.ended.contains(ended.id)) return true;
  if (seen.took < kQuickWalk && fullness(seen.use, limit) > 0.5) return true;
  const layers::QuotaUse most = plus(seen.use, minus(free_space_.look().lost, seen.space.lost));
  if (has_grown(most, seen.use) && is_over(most, limit)) return true;
  const uint64_t wrote = minus(base::written_bytes(running->init.pid), seen.writes.ended);
  return wrote > kSlackBytes && limit.bytes > 0 && seen.use.bytes + wrote > limit.bytes;
}

std::optional<std::string> QuotaWatch::judge_disk(const state_db::ExecRow& ended) {
  const auto id = ended.request.workspace;
  const auto claimed = [&]() -> std::optional<std::string> {
    const std::lock_guard lock(mutex_);
    const auto found = seen_.find(id);
    if (found == seen_.end()) return std::nullopt;
    Seen& seen = found->second;
    const auto own = seen.ended.find(ended.id);
    const bool later = ended.id > seen.unclaimed_newest;
    const bool waits = !later && Clock::now() < seen.unclaimed_until;
    if (own == seen.ended.end() && !waits) return std::nullopt;
    seen.unclaimed_until = {};
    return own == seen.ended.end() ? seen.told : own->second;
  };
  if (auto why = claimed()) return why;
  {
    const std::lock_guard lock(mutex_);
    seen_[id].ending.insert(ended.id);
  }
  const auto row = state_db::WorkspaceTable(context_.store).find(id);
  if (row) walks_.wait(id.value, kWaitedFor, row->owner_uid);
  {
    const std::lock_guard lock(mutex_);
    seen_[id].ending.erase(ended.id);
  }
  return claimed();
}

}  // namespace moorage::workspace
