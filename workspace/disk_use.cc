#include "workspace/disk_use.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/shared_usage.h"
#include "state_db/layer_disk.h"
#include "state_db/store.h"
#include "workspace/quota_watch.h"

namespace moorage::workspace {
namespace {

using std::chrono::milliseconds;

constexpr base::UsageLimits kWalk{.time = milliseconds(10'000)};
constexpr uint64_t kLeastLimit = 4096;

// Empty: it went away under the walk.
std::optional<base::Usage> walk(const std::string& path) {
  try {
    return base::shared_tree_usage(path, kWalk);
  } catch (const base::Error& error) {
    base::log(base::LogLevel::debug, "workspace.not_measured",
              {{"path", path}, {"error", error.message()}});
    return std::nullopt;
  }
}

}  // namespace

QuotaUse DiskUse::beside(base::WorkspaceId workspace, base::LayerId layer) {
  state_db::LayerDisk table(context_.store);
  QuotaUse use{table.journal_bytes(workspace), 0};
  for (auto other : table.owned_by(workspace)) {
    if (other.id == layer) continue;
    if (other.frozen && !other.measured) {
      if (const auto usage = walk(context_.storage.layer_path(other.id))) {
        other.bytes = usage->bytes;
        other.files = usage->inodes;
        table.set_frozen(other.id, other.bytes, other.files);
      }
    }
    // One that is being frozen now.
    const auto told = other.frozen ? std::nullopt
                                   : context_.storage.quota().use(
                                         other.id, context_.storage.layer_path(other.id));
    use.bytes += told ? told->bytes : other.bytes;
    use.files = *use.files + (told ? told->files : std::nullopt).value_or(other.files);
  }
  return use;
}

QuotaLimit DiskUse::limit_of_writable(const state_db::WorkspaceRow& row) {
  QuotaLimit limit = limit_of(row);
  if (!limit.any() || !context_.storage.quota().refuses_bytes()) return limit;
  const QuotaUse others = beside(row.id, row.layer);
  // 0 would be no limit.
  if (limit.bytes > 0) limit.bytes -= std::min(limit.bytes - kLeastLimit, others.bytes);
  if (limit.files > 0) limit.files -= std::min(limit.files - 1, others.files.value_or(0));
  return limit;
}

void DiskUse::keep_writable(const state_db::WorkspaceRow& row, uint64_t bytes, uint64_t files) {
  context_.store.transaction([&] {
    state_db::LayerDisk table(context_.store);
    table.set_writable(row.layer, bytes, files);
    table.recount(row.id);
  });
}

void DiskUse::settle(base::WorkspaceId workspace) {
  beside(workspace, {});
  const std::string records = context_.options.store + "/workspaces/" + workspace.str();
  std::optional<uint64_t> journal_bytes;
  if (!base::path_exists(records)) {
    journal_bytes = 0;
  } else if (const auto usage = walk(records)) {
    journal_bytes = usage->bytes;
  }
  context_.store.transaction(
      [&] { state_db::LayerDisk(context_.store).recount(workspace, journal_bytes); });
}

}  // namespace moorage::workspace
