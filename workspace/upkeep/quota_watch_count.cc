// How the disk watcher counts (quota_watch.h): the writable layer by a walk, unless the kernel
// counts it; frozen layers by stored sizes, measured in the background one layer at a time.
#include <algorithm>

#include "base/background.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/store.h"
#include "workspace/context/disk_use.h"
#include "workspace/upkeep/quota_watch.h"

namespace moorage::workspace {
namespace {

// For a frozen layer: nobody waits for it.
constexpr std::chrono::milliseconds kFrozenWalk{60'000};
// Loss in the whole store that counts as taking while there is no count; others always take some.
constexpr uint64_t kMostLost = 16 << 20;

void raise_over(layers::QuotaUse& use, const layers::QuotaLimit& limit) {
  if (limit.bytes > 0) use.bytes = std::max(use.bytes, limit.bytes + 1);
  if (limit.files > 0) use.files = std::max(use.files.value_or(0), limit.files + 1);
}

}  // namespace

std::optional<QuotaWatch::QuotaCount> QuotaWatch::measure(const state_db::WorkspaceRow& row,
                                                          const LiveSandbox* running,
                                                          const SandboxWrites& writes) {
  const DiskUse::Beside beside = DiskUse(context_).beside(row.id, row.layer);
  const std::string path = context_.storage.layer_path(row.layer);
  const layers::QuotaLimit limit = limit_of(row);
  auto& quota = context_.storage.quota();
  QuotaCount count;
  count.lower_bound = !beside.unmeasured.empty();
  count.complete = !ask_for(row, beside.unmeasured);
  auto use = quota.use(row.layer, path);
  // No walk is needed for a limit that the kernel enforces.
  if (!use || (limit.files > 0 && !quota.refuses_files())) {
    Still still;
    if (running) still = [&] { return std::make_shared<FrozenExecs>(*running, writes); };
    const auto walked = usage_of_written(path, still);
    if (!walked) return std::nullopt;
    if (!use) use = layers::QuotaUse{walked->bytes, {}};
    use->files = walked->inodes;
    count.complete = count.complete && walked->complete;
    if (walked->complete) DiskUse(context_).keep_writable(row, use->bytes, *use->files);
  }
  count.use = {use->bytes + beside.use.bytes, use->files};
  if (use->files) count.use.files = *use->files + beside.use.files.value_or(0);
  if (!count.complete) raise_over(count.use, limit);
  return count;
}

// Has these layers measured. True: one of them is too large to count.
bool QuotaWatch::ask_for(const state_db::WorkspaceRow& row,
                         const std::vector<base::LayerId>& unmeasured) {
  const std::lock_guard lock(mutex_);
  bool countless = false;
  bool due = false;
  for (const base::LayerId layer : unmeasured) {
    countless |= countless_.has(layer);
    due |= countless_.is_due(layer);
  }
  if (due) frozen_walks_.request(row.id.value, row.owner_uid);
  return countless;
}

// Measures one layer, then lets others have their turn.
void QuotaWatch::measure_frozen(base::WorkspaceId id) {
  const auto row = state_db::WorkspaceTable(context_.store).find(id);
  if (!row) return;
  DiskUse disk(context_);
  auto layers = disk.beside(id, row->layer).unmeasured;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(layers, [this](base::LayerId layer) { return !countless_.is_due(layer); });
  }
  std::optional<bool> counted;
  for (auto layer = layers.begin(); layer != layers.end() && !counted; ++layer) {
    try {
      const base::Background background;
      counted = disk.measure_frozen(*layer, kFrozenWalk);
    } catch (const base::Error& error) {  // it is gone or unreadable
      base::log(base::LogLevel::warning, "workspace.not_measured",
                {{"ly", *layer}, {"error", error.message()}});
      continue;
    }
    const std::lock_guard lock(mutex_);
    countless_.note(*layer, *counted);
  }
  if (!counted) return;
  if (layers.size() > 1) return frozen_walks_.request(id.value, row->owner_uid);
  // Make the watcher count again.
  const std::lock_guard lock(mutex_);
  if (const auto seen = seen_.find(id); seen != seen_.end())
    seen->second.next_walk = seen->second.next_quiet_walk = {};
}

// Whether it is below the limit although this walk failed to count: the last count plus all writes
// and all space that the store has lost since.
bool QuotaWatch::is_below(const state_db::WorkspaceRow& row, const Seen& before, const Seen& now) {
  if (!before.walked || before.uncounted) return false;
  // Nothing reports how many files were added.
  const auto space = base::file_system_space(context_.options.store);
  if (limit_of(row).files > 0 && space.total_inodes == 0) return false;
  layers::QuotaUse since = minus(now.space.lost, before.space.lost);
  since.bytes += minus(now.writes.all, before.writes.all);
  return !is_over(plus(before.use, since), limit_of(row));
}

// While it cannot be counted: something wrote, or took space without writing a page.
bool QuotaWatch::has_taken(const Seen& before, const Seen& now, const layers::QuotaLimit& limit) {
  const layers::QuotaUse lost = minus(now.space.lost, before.space.lost);
  return minus(now.writes.all, before.writes.all) > kSlackBytes || lost.bytes > kMostLost ||
         (limit.files > 0 && lost.files.value_or(0) > kSlackFiles);
}

}  // namespace moorage::workspace
