// A new layer over another one: its directories, whose roots look as those below did. The kernel
// shows the root of the topmost layer, so without that /workspace and the home would lose mode,
// owner, times and attributes with every snapshot.
#pragma once

#include "base/ids.h"
#include "workspace/context.h"

namespace moorage::workspace {

// Of a layer that has its row. Idempotent while nobody has written to it.
void make_layer(Context& context, base::LayerId layer);

}  // namespace moorage::workspace
