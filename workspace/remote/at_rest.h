// A sandbox on another machine runs on while its link here is replaced and nothing is mounted: that
// machine would not learn of a change of the files here.
#pragma once

#include "workspace/context/context.h"

namespace moorage::workspace {

// Throws unavailable then. Call it before a change of files, where no running sandbox is known.
void require_at_rest(Context& context, base::WorkspaceId workspace);

}  // namespace moorage::workspace
