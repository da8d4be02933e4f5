// What a new workspace finds besides the base tree: its own .git/HEAD and packed-refs (branch,
// upstream's branches and tags) in the upper directory, and the skeleton of the home directory. All
// of it, like the layer's directories, follows from the workspace's row, so `create` need not sync
// it: what a power cut took is made again.
#pragma once

#include <functional>
#include <string>

#include "state_db/workspaces.h"
#include "workspace/context.h"

namespace moorage::workspace {

void write_git_files(Context& context, const state_db::WorkspaceRow& row);

// A file in the layer of a workspace that is being imported: what is there is not all of it. Both
// are durable: what has no mark is finished after a crash.
void set_incoming_mark(Context& context, base::LayerId layer);
void remove_incoming_mark(Context& context, base::LayerId layer);

// Whether its birth was over, whatever the row says: all was written, or commands ran in it.
bool is_born(Context& context, const state_db::WorkspaceRow& row);

// Runs `sync`, which brings the store's file system to the disk, and then notes the births that
// were over before it began, up to the first that a power cut took something of.
void sync_births(Context& context, const std::function<void()>& sync);

// What a power cut right after its create may have taken is made again. That is only possible while
// nothing of it was ever synced: not by sync_births, it never rested after a command, and every
// sandbox that it had was of another boot. What is missing otherwise was taken by somebody
// (integrity.h).
bool birth_may_be_cut(Context& context, const state_db::WorkspaceRow& row);

// Whether mend_birth would write: never while a sandbox of the workspace lives, or lived in this
// boot, as no power cut came after it. An agent that removed its .git, or put a file in its place,
// keeps it so.
bool needs_mending(Context& context, const state_db::WorkspaceRow& row);

// Makes the layer and its git files again where a power cut right after `create` took them. Throws
// where that fails, and the workspace's integrity is needs-repair until it succeeds.
void mend_birth(Context& context, const state_db::WorkspaceRow& row);

// Brings to the disk what mend_birth may have to make again: a layer that is frozen is not mended.
void sync_birth(Context& context, const state_db::WorkspaceRow& row);

// The lowest layer of /home/user for image `host`, made once a store, durable. Returns its path.
std::string ensure_home_skeleton(const Options& options);

}  // namespace moorage::workspace
