// The calls that a sandbox may make (launch/seccomp_calls.h) as a profile in the JSON of container
// engines, which they hand to libseccomp. It permits and answers what the filter of backend lxc
// does.
#pragma once

#include <string>

namespace moorage::backends {

// With nested namespaces: also what makes them, and mounts in them.
std::string engine_seccomp_profile(bool nested_namespaces);

}  // namespace moorage::backends
