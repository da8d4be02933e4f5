// What the disk has and the database knows nothing of, after an older state.db was put in place. A
// crash never leaves such a layer or journal: the row comes before the directory and goes after
// it. So it is somebody's work. It is moved to <store>/lost/<name>-<time>, never removed, and no id
// that was used before the restore is given again.
#pragma once

#include "workspace/context.h"

namespace moorage::workspace {

// No id that is on the disk is given again. At start, before anything is made.
void raise_ids(Context& context);
void keep_lost_work(Context& context);

}  // namespace moorage::workspace
