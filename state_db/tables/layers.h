// Layers: the changes over a base tree or over a parent layer, on disk at layers/<layer>/. A frozen
// layer never changes again and never thaws.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace moorage::state_db {

class Store;

struct LayerRow {
  base::LayerId id{};
  base::LayerId parent{};  // 0: directly on the base tree
  base::RepoId repository{};
  std::string base_commit{};
  bool frozen = false;
  int64_t created_wall_ms = 0;
  bool cold = false;  // in the archives of its users, and missing or incomplete on disk
  std::optional<uint64_t> disk_bytes{};
};

struct NewLayer {
  base::LayerId parent{};
  base::RepoId repository{};
  std::string base_commit{};
};

struct ReplacedLayer {
  base::LayerId by{};
  base::LayerId mounted_upto{};  // mounts of younger writable layers contain `by`
};

class LayerTable {
 public:
  explicit LayerTable(Store& store) : store_(store) {}

  base::LayerId create(const NewLayer& layer);
  LayerRow get(base::LayerId id);  // not_found
  std::optional<LayerRow> find(base::LayerId id);
  std::vector<LayerRow> list();
  std::vector<base::LayerId> unknown(const std::vector<base::LayerId>& ids);  // without a row
  // The layer and its parents, top first.
  std::vector<LayerRow> chain(base::LayerId top);
  void freeze(base::LayerId id);
  // Puts another frozen layer with the same contents below it. The previous one stays until
  // forget_replaced(), as it may be mounted. conflict: `from` is not below it.
  void exchange_parent(base::LayerId id, base::LayerId from, base::LayerId to);
  std::vector<ReplacedLayer> replaced();
  void forget_replaced(base::LayerId by);
  // The workspaces with this layer in their chain.
  std::vector<base::WorkspaceId> workspaces_on(base::LayerId id);
  // All or none. conflict: a workspace, a snapshot or a layer outside of `ids` uses one.
  void remove(const std::vector<base::LayerId>& ids);
  std::set<std::pair<base::RepoId, std::string>> bases();  // commits that layers start from
  // Frozen layers used only by archived workspaces whose archives all hold all of their layers. A
  // layer appears once for each of these workspaces.
  struct Archived {
    base::LayerId layer{};
    base::WorkspaceId workspace{};
    bool cold = false;
    friend auto operator<=>(const Archived&, const Archived&) = default;
  };
  std::vector<Archived> only_archived();
  void set_cold(const std::vector<base::LayerId>& ids, bool cold);
  std::vector<LayerRow> unused();  // neither used by a workspace or snapshot nor below a used one

 private:
  Store& store_;
};

}  // namespace moorage::state_db
