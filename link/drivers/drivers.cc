// The table of providers.
#include <string>

#include "base/error.h"
#include "link/driver.h"
#include "link/drivers/daytona.h"
#include "link/drivers/e2b.h"
#include "link/drivers/ssh_driver.h"

namespace moorage::link {

std::unique_ptr<Driver> make_driver(std::string_view provider, const DriverOptions& options) {
  if (provider == "ssh") return std::make_unique<SshDriver>(options);
  if (provider == "e2b") return make_e2b_driver(options);
  if (provider == "daytona") return make_daytona_driver(options);
  throw Error(Code::invalid_argument, "unknown provider: " + std::string(provider));
}

}  // namespace moorage::link
