// Checks before a command starts or a file is uploaded (quota_watch.h).
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "state_db/store.h"
#include "workspace/upkeep/quota_watch.h"

namespace moorage::workspace {
namespace {

using std::chrono::milliseconds;

}  // namespace

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
