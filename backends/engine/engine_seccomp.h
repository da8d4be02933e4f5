// A sandbox's allowed calls (launch/seccomp_calls.h) as a JSON profile for container engines, which
// pass it to libseccomp. It permits and returns the same as the filter of backend lxc.
#pragma once

#include <string>

namespace moorage::backends {

// With nested namespaces: also the calls that create them and mount inside them.
std::string engine_seccomp_profile(bool nested_namespaces);

}  // namespace moorage::backends
