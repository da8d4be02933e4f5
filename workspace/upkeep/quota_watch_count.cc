// How the disk watcher counts (quota_watch.h): the writable layer by a walk, unless the kernel
// counts it; frozen layers by stored sizes, measured in the background one layer at a time. And its
// checks before a command starts or a file is uploaded.
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

using std::chrono::milliseconds;

// For a frozen layer: nobody waits for it.
constexpr milliseconds kFrozenWalk{60'000};
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

// Each short command writes something before it is noticed, so refuse a series of them.
void QuotaWatch::require_within(const state_db::WorkspaceRow& row) {
  const layers::QuotaLimit limit = limit_of(row);
  if (limit.any()) expect_command();
  if (limit.bytes == 0) return;
  const auto used = [&] {
    const std::lock_guard lock(mutex_);
    const auto found = seen_.find(row.id);
    if (found != seen_.end()) return found->second.use.bytes;
    const auto now = state_db::WorkspaceTable(context_.store).find(row.id);
    return now ? now->disk_bytes.value_or(0) : 0;
  };
  if (used() <= limit.bytes + kMostOver) return;
  walks_.wait(row.id.value, kWaitedFor, row.owner_uid);  // files may have been removed
  const uint64_t bytes = used();
  if (bytes <= limit.bytes + kMostOver) return;
  throw Error(Code::resource_exhausted,
              "cannot start a command: " + row.name + " is far over its disk limit (" +
                  text_of({bytes, {}}, limit) + ")",
              "remove files: moorage exec --free-space " + row.name +
                  " -- rm FILE; or raise it: moorage set " + row.name + " --disk SIZE");
}

void QuotaWatch::measure_rested() {
  std::map<base::WorkspaceId, layers::QuotaUse> rested;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, seen] : seen_) {
      const bool rests = !context_.live.running_sandbox(id) && !context_.live.mounted(id);
      if (rests && seen.uploaded && Clock::now() > seen.next_walk) rested[id] = seen.use;
    }
  }
  for (const auto& [id, use] : rested) measure_one_rested(id, use);
}

// Uploads to a stopped workspace count until they are measured; the row then has the result.
void QuotaWatch::measure_one_rested(base::WorkspaceId id, const layers::QuotaUse& counted) {
  const auto row = state_db::WorkspaceTable(context_.store).find(id);
  const bool there = row && row->state == state_db::WorkspaceState::ready && row->layer;
  const auto began = Clock::now();
  const auto measured = there ? measure(*row, nullptr, {}) : QuotaCount{};
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - began);
  const std::lock_guard lock(mutex_);
  const auto found = seen_.find(id);
  if (found == seen_.end()) return;
  Seen& seen = found->second;
  seen.next_walk = Clock::now() + std::max(milliseconds(1'000), took * kShare);
  const bool same = seen.use.bytes == counted.bytes && seen.use.files == counted.files;
  // More was uploaded meanwhile, or it cannot be counted: try again at the next round.
  if (!same || !measured || !measured->complete) return;
  seen.use = measured->use;
  seen.uploaded = false;
}

void QuotaWatch::require_room(const state_db::WorkspaceRow& row, uint64_t bytes) {
  const layers::QuotaLimit limit = limit_of(row);
  if (!limit.any()) return;
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = seen_.try_emplace(row.id);
  Seen& seen = found->second;
  if (is_new) seen.use = {row.disk_bytes.value_or(0), row.disk_files};
  const layers::QuotaUse wanted{seen.use.bytes + bytes, seen.use.files.value_or(0) + 1};
  if (!is_over(wanted, limit)) {
    seen.use.bytes = wanted.bytes;
    if (bytes == 0) seen.use.files = wanted.files;  // called once per file before its bytes
    seen.uploaded = true;
    return;
  }
  throw Error(Code::resource_exhausted,
              "cannot write the file: " + row.name + " has reached its disk limit (" +
                  text_of(seen.use, limit) + ")",
              "remove files in it, or raise the limit: moorage set " + row.name +
                  " --disk SIZE --disk-files N");
}

}  // namespace moorage::workspace
