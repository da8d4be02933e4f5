// Makes a frozen copy of the layer that a running sandbox writes to. Either file by file: passes of
// layers/copy.h while it runs, and a last one while all its processes are frozen. Or in one step by
// the file system (btrfs), after its dirty data was written while it ran.
#pragma once

#include <cstdint>

#include "layers/copy.h"
#include "layers/overlay.h"
#include "workspace/context/live_sandboxes.h"

namespace moorage::workspace {

// Returns the microseconds that it was frozen. Whatever it throws, the sandbox keeps running.
// Throws deadline_exceeded: it could not be frozen.
uint64_t copy_live_layer(const layers::LayerCopy::Places& places, const LiveSandbox& running);
// The same by cloning; durable.
uint64_t clone_live_layer(layers::Storage& storage, base::LayerId live, base::LayerId copy,
                          const LiveSandbox& running);

}  // namespace moorage::workspace
