// Makes a new layer over another one: its directories, with the root attributes of those below. The
// kernel shows the root of the topmost layer, so without this /workspace and the home would lose
// mode, owner, times and attributes with every snapshot.
#pragma once

#include <vector>

#include "base/ids.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

// The layer must have its row. Idempotent while nobody has written to the layer.
void make_layer(Context& context, base::LayerId layer);
// The same for several, synced so that they survive a power cut: otherwise only a row would show
// that a layer was made and then lost.
void make_layers(Context& context, const std::vector<base::LayerId>& layers);

}  // namespace moorage::workspace
