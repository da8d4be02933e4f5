#include "workspace/upkeep/store_usage.h"

#include <sys/stat.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/store.h"
#include "state_db/tables/layer_disk.h"

namespace moorage::workspace {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kWholeRun{60'000};
constexpr milliseconds kOneTree{10'000};

// For the file or directory itself.
uint64_t own_bytes(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_blocks) * 512 : 0;
}

std::string below(const std::string& directory, const std::string& name) {
  return directory + "/" + name;
}

}  // namespace

uint64_t StoreUse::total_bytes() const {
  return std::accumulate(parts.begin(), parts.end(), uint64_t{0});
}

uint64_t StoreUse::shared_by(base::RepoId repository, const std::string& commit) const {
  return static_cast<uint64_t>(
      std::count_if(workspaces.begin(), workspaces.end(), [&](const WorkspaceUse& use) {
        return use.row.repository == repository && use.row.base_commit == commit;
      }));
}

class StoreUsage::Walk {
 public:
  explicit Walk(StoreUsage& usage)
      : known_trees_(usage.trees_),
        context_(usage.context_),
        store_(usage.context_.options.store),
        layers_(store_ + "/layers/"),
        deadline_(Clock::now() + kWholeRun) {}

  StoreUse run() {
    use_.began = Clock::now();
    use_.wall_ms = context_.store.clock().wall_ms();
    list_workspaces();
    use_.part(StorePart::other) += own_bytes(store_);
    for (const std::string& name : base::list_directory(store_)) place(name);
    use_.ended = Clock::now();
    return std::move(use_);
  }

 private:
  // Empty if it could not be measured completely. A file with names in several layers counts with
  // its share in each, so that the sum is its real size.
  std::optional<uint64_t> measure(const std::string& path) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now());
    base::UsageLimits limits;
    limits.time = std::clamp(left, milliseconds(0), kOneTree);
    try {
      const auto usage = path.starts_with(layers_) ? base::shared_tree_usage(path, limits)
                                                   : base::tree_usage(path, limits);
      if (usage.complete) return usage.bytes;
    } catch (const base::Error& error) {
      base::log(base::LogLevel::warning, "store.not_measured",
                {{"path", path}, {"error", error.message()}});
    }
    use_.complete = false;
    return std::nullopt;
  }

  void add(StorePart part, const std::string& path) {
    use_.part(part) += measure(path).value_or(0);
  }

  void list_workspaces() {
    state_db::WorkspaceQuery query;
    query.with_deleted = true;
    for (auto& row : state_db::WorkspaceTable(context_.store).list(query)) {
      WorkspaceUse use;
      use.row = std::move(row);
      use_.workspaces.push_back(std::move(use));
    }
    for (auto& use : use_.workspaces) {
      if (!use.row.layer) continue;
      for (const auto& layer : state_db::LayerDisk(context_.store).owned_by(use.row.id))
        of_layer_[layer.id.str()] = {&use, layer.frozen, layer.bytes};
      of_name_[use.row.id.str()] = &use;
    }
  }

  void place(const std::string& name) {
    const std::string path = below(store_, name);
    if (name == "layers") return layers(path);
    if (name == "workspaces") return journals(path);
    if (name == "repos") return repositories(path);
    if (name == "archive") return add(StorePart::archives, path);
    if (name == "reserve") return add(StorePart::reserve, path);
    if (name.starts_with("state.db")) return add(StorePart::database, path);
    if (name == "images") return add(StorePart::images, path);
    if (name == "sandboxes" || name == "salvage") return add(StorePart::sandboxes, path);
    add(name == "lost" ? StorePart::lost : StorePart::other, path);
  }

  // Calls `take` for those with an entry in `known`; the rest count as `other`.
  template <typename Known, typename Take>
  void each_known(const std::string& directory, Known& known, const Take& take) {
    use_.part(StorePart::other) += own_bytes(directory);
    for (const std::string& name : base::list_directory_if_exists(directory)) {
      const auto found = known.find(name);
      if (found == known.end()) {
        add(StorePart::other, below(directory, name));
      } else {
        take(below(directory, name), found->second);
      }
    }
  }

  void layers(const std::string& directory) {
    each_known(directory, of_layer_, [this](const std::string& path, const OwnedLayer& layer) {
      WorkspaceUse& use = *layer.owner;
      const auto bytes = measure(path);
      use.complete = use.complete && bytes;
      (layer.frozen ? use.snapshot_bytes : use.edits_bytes) += bytes.value_or(layer.known_bytes);
    });
    for (const auto& use : use_.workspaces) {
      use_.part(StorePart::edits) += use.edits_bytes;
      use_.part(StorePart::snapshots) += use.snapshot_bytes;
    }
  }

  void journals(const std::string& directory) {
    each_known(directory, of_name_, [this](const std::string& path, WorkspaceUse* use) {
      const auto bytes = measure(path);
      use->complete = use->complete && bytes;
      use->journal_bytes = bytes.value_or(0);
      use_.part(StorePart::journals) += use->journal_bytes;
    });
  }

  void repositories(const std::string& directory) {
    std::map<std::string, state_db::RepositoryRow> rows;
    for (auto& row : state_db::RepositoryTable(context_.store).list())
      rows[row.id.str()] = std::move(row);
    each_known(directory, rows, [this](const std::string& path, state_db::RepositoryRow& row) {
      repository(path, std::move(row));
    });
  }

  void repository(const std::string& directory, state_db::RepositoryRow row) {
    RepositoryUse use;
    use.row = std::move(row);
    use.mirror_bytes = own_bytes(directory);
    for (const std::string& name : base::list_directory_if_exists(directory)) {
      if (name == "trees") {
        use.mirror_bytes += own_bytes(directory + "/trees");
        for (const std::string& commit : base::list_directory_if_exists(directory + "/trees"))
          tree(directory, commit, use);
      } else {
        use.mirror_bytes += measure(below(directory, name)).value_or(0);
      }
    }
    use_.part(StorePart::mirrors) += use.mirror_bytes;
    use_.repositories.push_back(std::move(use));
  }

  void tree(const std::string& directory, const std::string& commit, RepositoryUse& use) {
    const std::string path = below(directory + "/trees", commit);
    const auto row = state_db::BaseTreeTable(context_.store).find(use.row.id, commit);
    if (!row) {  // being written, or left by an interrupted write
      use.mirror_bytes += measure(path).value_or(0);
      return;
    }
    auto& [made, bytes] = known_trees_[{use.row.id, commit}];
    if (made != row->created_wall_ms || bytes == 0) {
      const auto measured = measure(path);
      made = measured ? row->created_wall_ms : 0;
      bytes = measured.value_or(row->disk_bytes);
    }
    use.tree_bytes[commit] = bytes;
    use_.part(StorePart::base_trees) += bytes;
  }

  decltype(StoreUsage::trees_)& known_trees_;
  Context& context_;
  struct OwnedLayer {
    WorkspaceUse* owner = nullptr;
    bool frozen = false;
    uint64_t known_bytes = 0;
  };

  const std::string store_;
  const std::string layers_;
  const Clock::time_point deadline_;
  StoreUse use_;
  std::map<std::string, OwnedLayer> of_layer_;
  std::map<std::string, WorkspaceUse*> of_name_;
};

std::shared_ptr<const StoreUse> StoreUsage::last() {
  const std::lock_guard lock(mutex_);
  return last_;
}

void StoreUsage::measure() {
  try {
    auto use = std::make_shared<const StoreUse>(Walk(*this).run());
    const std::lock_guard lock(mutex_);
    last_ = std::move(use);
  } catch (const std::exception& error) {
    base::log(base::LogLevel::warning, "store.not_measured", {{"error", error.what()}});
  }
}

}  // namespace moorage::workspace
