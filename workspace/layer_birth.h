// A new layer over another one: its directories, whose roots look as those below did. The kernel
// shows the root of the topmost layer, so without that /workspace and the home would lose mode,
// owner, times and attributes with every snapshot.
#pragma once

#include <vector>

#include "base/ids.h"
#include "workspace/context.h"

namespace moorage::workspace {

// Of a layer that has its row. Idempotent while nobody has written to it.
void make_layer(Context& context, base::LayerId layer);
// The same, of some, which are there after a power cut, too: nothing but its row would tell that
// one was made, and that it is gone.
void make_layers(Context& context, const std::vector<base::LayerId>& layers);

}  // namespace moorage::workspace
