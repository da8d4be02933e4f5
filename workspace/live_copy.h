// A frozen copy of the layer that a running sandbox writes to: passes of layer_copy.h while it
// runs, and a last one while every process of it is frozen.
#pragma once

#include <cstdint>

#include "workspace/active.h"
#include "workspace/layer_copy.h"

namespace moorage::workspace {

// Microseconds for which it was frozen. Whatever is thrown, it runs on. deadline_exceeded: it could
// not be frozen.
uint64_t copy_live_layer(const LayerCopy::Places& places, const Running& running);

}  // namespace moorage::workspace
