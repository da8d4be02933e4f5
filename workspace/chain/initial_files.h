// The files of a new workspace besides the base tree: its own .git/HEAD and packed-refs (branch,
// upstream's branches and tags) in the upper directory, an index if its base is uncommitted work,
// and the skeleton of the home directory. All
// of it, like the layer's directories, follows from the workspace's row, so `create` need not sync
// it: files lost in a power cut are made again.
#pragma once

#include <functional>

#include "state_db/tables/workspaces.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

void write_git_files(Context& context, const state_db::WorkspaceRow& row);

// Marks the layer of a workspace whose import is incomplete. Both calls are durable: after a crash,
// an import without the mark is completed.
void set_incoming_mark(Context& context, base::LayerId layer);
void remove_incoming_mark(Context& context, base::LayerId layer);

// Whether its creation completed, whatever the row says: everything was written, or commands ran.
bool initial_files_complete(Context& context, const state_db::WorkspaceRow& row);

// Runs `sync`, which writes the store's file system to the disk, then records the workspaces that
// were complete before it, up to the first one that a power cut damaged.
void sync_all_initial_files(Context& context, const std::function<void()>& sync);

// Whether a power cut right after its create may have lost files, which are then made again. Only
// possible if nothing of it was ever synced: not by sync_all_initial_files, no seal after a
// command, and no sandbox in this boot. Otherwise somebody removed the missing files (integrity.h).
bool initial_files_may_be_partial(Context& context, const state_db::WorkspaceRow& row);

// Whether repair_initial_files would write: never while the workspace has or had a sandbox in this
// boot, because no power cut came after it. A .git that the agent removed or replaced by a file
// stays so.
bool needs_repair(Context& context, const state_db::WorkspaceRow& row);

// Restores the layer and its git files if a power cut right after `create` lost them. Throws if
// that fails; then the workspace's integrity is needs-repair until it succeeds.
void repair_initial_files(Context& context, const state_db::WorkspaceRow& row);

// Syncs the files that repair_initial_files can restore: those of a frozen layer cannot be
// restored.
void sync_initial_files(Context& context, const state_db::WorkspaceRow& row);

}  // namespace moorage::workspace
