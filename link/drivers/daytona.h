// Daytona. A machine is a sandbox, found by its labels; its name is made of them, too. Programs run
// as commands of sessions (session_stream.h): run() adds `--text` to their arguments. pause() stops
// the sandbox: its disk stays, its programs end. Settings:
//   api_url           default https://app.daytona.io/api
//   toolbox_url       default: as the sandbox itself says
//   snapshot, image   what a sandbox is made of: one of them, or neither for the provider's default
//   target            region
//   organization      id, needed with some keys
//   user              default: the image's
//   cpu, memory_gb, disk_gb
//   directory         DIR; default: .moorage in the user's home
//   volume            keeps base trees (volume/daytona_volume.h); made if it is missing
//   on_stop           "pause" or "kill" (default): whether can_pause()
//   auto_stop_min     it stops after so long without use; default 15
//   internet          false: the provider cuts the sandbox off
//   ca_file           authorities besides the system's
//   allow_plain_http  also for other hosts than loopback
#pragma once

#include <memory>

#include "link/driver.h"

namespace moorage::link {

std::unique_ptr<Driver> make_daytona_driver(const DriverOptions& options);

}  // namespace moorage::link
