// Handles files on disk that the database does not know, after an older state.db was restored. A
// crash never leaves such a layer or journal: the row is written before the directory is made, and
// removed after it. So it is somebody's work. It is moved to <store>/lost/<name>-<time>, never
// removed, and no id used before the restore is given out again.
#pragma once

#include "workspace/context/context.h"

namespace moorage::workspace {

// Never give out an id that is on the disk. Runs at start, before anything is made.
void raise_ids(Context& context);
void keep_lost_work(Context& context);

}  // namespace moorage::workspace
