// The limit on what one user's sandboxes on other machines may cost: hours of sandboxes in the last
// 24 hours (remote.user_hours_a_day). A sandbox counts from the request to start it until it ended.
#pragma once

#include <cstdint>

#include "workspace/context/context.h"

namespace moorage::workspace {

// Milliseconds, of all of the user's sandboxes on other machines in the last 24 hours.
int64_t spent_ms(Context& context, uint32_t owner_uid);
// Throws resource_exhausted when the limit is reached. Running sandboxes are not ended.
void require_hours(Context& context, uint32_t owner_uid);

}  // namespace moorage::workspace
