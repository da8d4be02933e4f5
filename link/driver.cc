#include "link/driver.h"

#include "base/error.h"

namespace moorage::link {

void Driver::pause(const Machine&, Deadline) {
  throw Error(Code::unsupported, "this provider cannot pause a machine");
}

void Driver::resume(const Machine&, Deadline) {
  throw Error(Code::unsupported, "this provider cannot resume a machine");
}

std::unique_ptr<Driver> make_driver(std::string_view provider, const DriverOptions&) {
  throw Error(Code::invalid_argument, "unknown provider: " + std::string(provider));
}

}  // namespace moorage::link
