#include "workspace/context/disk_use.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/store.h"
#include "state_db/tables/layer_disk.h"

namespace moorage::workspace {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kWalk{10'000};
constexpr uint64_t kLeastLimit = 4096;

// nullopt: not finished within that time.
std::optional<base::Usage> walk(const std::string& path, milliseconds time) {
  const auto usage = base::shared_tree_usage(path, {.time = time});
  if (usage.complete) return usage;
  base::log(base::LogLevel::warning, "workspace.not_measured",
            {{"path", path}, {"error", "too many files to count"}});
  return std::nullopt;
}

void try_step(const std::string& path, const std::function<void()>& look) {
  try {
    look();
  } catch (const base::Error& error) {  // it was removed during the walk
    base::log(base::LogLevel::debug, "workspace.not_measured",
              {{"path", path}, {"error", error.message()}});
  }
}

}  // namespace

layers::QuotaLimit limit_of(const state_db::WorkspaceRow& row) {
  return {row.policy.limits.disk_bytes, row.policy.limits.disk_files};
}

DiskUse::Beside DiskUse::beside(base::WorkspaceId workspace, base::LayerId layer) {
  state_db::LayerDisk table(context_.store);
  Beside beside{{table.journal_bytes(workspace), 0}};
  for (const auto& other : table.owned_by(workspace)) {
    if (other.id == layer) continue;
    if (other.frozen && !other.measured) beside.unmeasured.push_back(other.id);
    // Another writable layer is just being frozen: ask its quota.
    const auto used = other.frozen ? std::nullopt
                                   : context_.storage.quota().use(
                                         other.id, context_.storage.layer_path(other.id));
    beside.use.bytes += used ? used->bytes : other.bytes;
    beside.use.files =
        *beside.use.files + (used ? used->files : std::nullopt).value_or(other.files);
  }
  return beside;
}

bool DiskUse::measure_frozen(base::LayerId layer, milliseconds time) {
  const auto usage = walk(context_.storage.layer_path(layer), time);
  if (usage) state_db::LayerDisk(context_.store).set_frozen(layer, usage->bytes, usage->inodes);
  return usage.has_value();
}

layers::QuotaLimit DiskUse::limit_of_writable(const state_db::WorkspaceRow& row,
                                              base::LayerId layer) {
  layers::QuotaLimit limit = limit_of(row);
  if (!limit.any() || !context_.storage.quota().refuses_bytes()) return limit;
  const layers::QuotaUse others = beside(row.id, layer).use;
  // 0 would mean unlimited.
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
  for (const auto layer : beside(workspace, {}).unmeasured)
    try_step(layer.str(), [&] { measure_frozen(layer, kWalk); });
  const std::string records = context_.options.store + "/workspaces/" + workspace.str();
  std::optional<uint64_t> journal_bytes;
  try_step(records, [&] {
    const auto usage = base::path_exists(records) ? walk(records, kWalk) : base::Usage{};
    if (usage) journal_bytes = usage->bytes;
  });
  context_.store.transaction(
      [&] { state_db::LayerDisk(context_.store).recount(workspace, journal_bytes); });
}

}  // namespace moorage::workspace
