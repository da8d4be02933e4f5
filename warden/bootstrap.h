// How the warden gets its listening socket: it dials the one socket that is bind-mounted into the
// sandbox, says hello, and receives the listener as a descriptor. The listener's path exists on the
// host only. The hello is the same in every release (docs/decisions/0308-versions.md); what is
// spoken then is asked afterwards.
#pragma once

#include <string>

#include "base/fd.h"

namespace moorage::warden {

// Tries for 20 s; throws after that, or when what came is no listening unix socket.
base::Fd fetch_listener(const std::string& bootstrap_path);
void check_listener(const base::Fd& listener);  // and makes it non-blocking

}  // namespace moorage::warden
