// A frozen copy of the layer that a running sandbox writes to. Of files: passes of layer_copy.h
// while it runs, and a last one while every process of it is frozen. Or in one step, by the file
// system (btrfs), after what is dirty was written while it ran.
#pragma once

#include <cstdint>

#include "workspace/active.h"
#include "workspace/layer_copy.h"
#include "workspace/overlay.h"

namespace moorage::workspace {

// Microseconds for which it was frozen. Whatever is thrown, it runs on. deadline_exceeded: it could
// not be frozen.
uint64_t copy_live_layer(const LayerCopy::Places& places, const Running& running);
// The same; durable.
uint64_t clone_live_layer(Storage& storage, base::LayerId live, base::LayerId copy,
                          const Running& running);

}  // namespace moorage::workspace
