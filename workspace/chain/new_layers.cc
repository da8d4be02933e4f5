#include "workspace/chain/new_layers.h"

#include <sys/stat.h>

#include <string>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "layers/node_copy.h"
#include "layers/overlay.h"
#include "state_db/tables/layers.h"

namespace moorage::workspace {

void make_layer(Context& context, base::LayerId layer) {
  context.storage.make_layer(layer);
  const auto below = state_db::LayerTable(context.store).get(layer).parent;
  if (!below) return;
  for (const std::string part : {"/tree/upper", "/home/upper", "/system/upper"}) {
    const base::Fd from = base::open_directory(context.storage.layer_path(below) + part);
    const base::Fd to = base::open_directory(context.storage.layer_path(layer) + part);
    struct stat status {};
    base::check(fstat(from.get(), &status), "stat " + below.str() + part);
    layers::copy_directory_attributes(from.get(), to.get(), status);
  }
}

void make_layers(Context& context, const std::vector<base::LayerId>& layers) {
  for (const auto layer : layers) make_layer(context, layer);
  if (!layers.empty()) context.storage.sync_layer(layers.back());
}

}  // namespace moorage::workspace
