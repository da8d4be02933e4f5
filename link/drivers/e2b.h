// E2B and servers that speak its control API and envd. A machine is a sandbox of a template, found
// by its metadata. Settings:
//   api_url           default https://api.e2b.app
//   sandbox_url       envd of all sandboxes; default https://49983-ID.DOMAIN
//   domain            DOMAIN, if a sandbox's own answer has none; default: of api_url
//   template          default "base"
//   user              runs the outpost; default "root", so that it can make an overlay
//   directory         DIR; default: .moorage in the user's home
//   on_stop           "pause" or "kill" (default): whether can_pause()
//   internet          false: the provider cuts the sandbox off
//   life_s            until the first extend(); default 300
//   ca_file           authorities besides the system's
//   allow_plain_http  also for other hosts than loopback
#pragma once

#include <memory>

#include "link/driver.h"

namespace moorage::link {

std::unique_ptr<Driver> make_e2b_driver(const DriverOptions& options);

}  // namespace moorage::link
