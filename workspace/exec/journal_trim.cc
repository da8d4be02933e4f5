// Drops the middle of a running command's journal when it grows long (base/wire/journal_middle.h).
#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "workspace/exec/watched_exec.h"

namespace moorage::workspace {
namespace {

constexpr uint64_t kLeastLimit = 64 << 10;

}  // namespace

// The workspace's running commands share its output limit.
uint64_t ExecWatcher::journal_limit(base::WorkspaceId workspace) {
  const uint64_t one = context_.options.output_limit_bytes;
  const uint64_t all = context_.options.workspace_output_bytes;
  if (all == 0) return one;
  const std::lock_guard lock(mutex_);
  const auto running = static_cast<uint64_t>(std::count_if(
      execs_.begin(), execs_.end(),
      [workspace](const auto& entry) { return entry.second->row.request.workspace == workspace; }));
  return std::max(kLeastLimit, std::min(one, all / std::max<uint64_t>(running, 1)));
}

// Runs on a pool: freeing many bytes on disk may take long.
void ExecWatcher::cut_middle(const WatchedPtr& watched, uint64_t limit_bytes) {
  if (watched->cutting || watched->uncuttable) return;
  const auto cut = watched->middle.next_cut(limit_bytes);
  if (!cut) return;
  watched->middle.done(*cut);
  watched->cutting = true;
  ends_.submit(watched->share(), [this, watched, cut = *cut] {
    bool failed = false;
    try {
      cut_journal(journal_path(context_.options, watched->row.request.workspace, watched->row.id),
                  cut);
    } catch (const base::Error& error) {
      failed = true;
      base::log(base::LogLevel::error, "exec.journal_not_cut",
                {{"ex", watched->row.id}, {"error", error.message()}});
    }
    std::optional<base::Frame> ended;
    {
      const std::lock_guard lock(watched->mutex);
      watched->cutting = false;
      watched->uncuttable = failed;
      ended.swap(watched->held_end);
    }
    if (ended) return end(watched, *ended);
    // More output may have arrived meanwhile, and the warden waits for room.
    const std::lock_guard lock(mutex_);
    if (execs_.contains(watched->row.id)) more_.insert(watched->row.id);
    wake();
  });
}

}  // namespace moorage::workspace
