#include "link/driver.h"

#include "base/error.h"

namespace moorage::link {

std::unique_ptr<Run> Driver::run_at_once(const std::vector<std::string>&) { return nullptr; }

void Driver::pause(const Machine&, Deadline) {
  throw Error(Code::unsupported, "this provider cannot pause a machine");
}

void Driver::resume(const Machine&, Deadline) {
  throw Error(Code::unsupported, "this provider cannot resume a machine");
}

void Driver::let_out(const Machine&, const base::ProviderRules&, Deadline) {
  throw Error(Code::unsupported, "this provider holds no rules about hosts");
}

}  // namespace moorage::link
