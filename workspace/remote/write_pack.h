// Writes the changes of one pack from another machine (packs/merged/applier.h) into the mounted
// files of a workspace. Hostile input: the pack is verified first, and bounded by the workspace's
// limit on disk and by the room on the store's disk. Writing it again is harmless.
#pragma once

#include <functional>

#include "base/os/fd.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

inline constexpr const char* kTakeOver = "cannot take over changes from the other machine";

// `check_stopping` may throw at any moment. Throws corrupted if the pack breaks a rule,
// resource_exhausted without room.
void write_pack(Context& context, const state_db::WorkspaceRow& row, const SharedMounts& mounted,
                base::Fd file, const std::function<void()>& check_stopping);

}  // namespace moorage::workspace
