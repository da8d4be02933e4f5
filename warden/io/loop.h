// The warden's names for base/os/event_loop.h.
#pragma once

#include "base/os/event_loop.h"

namespace moorage::warden {

using base::io_buffer;
using base::Loop;
using base::monotonic_ms;
using base::Timer;
using base::Watch;

}  // namespace moorage::warden
