// Files that uploads of an earlier daemon left under temporary names (layers/upload_note.h).
#pragma once

#include <string>
#include <vector>

#include "workspace/verbs/files.h"

namespace moorage::workspace {

// The notes of uploads that no longer go on and whose workspace has its files here. The notes of an
// archived or deleted workspace wait until it is back.
std::vector<std::string> upload_leftovers(Context& context);

// Removes the files that these notes name, and the notes. Call it once the sandboxes are adopted.
void sweep_uploads(Context& context, Files& files);

}  // namespace moorage::workspace
