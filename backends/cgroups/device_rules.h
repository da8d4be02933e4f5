// Limits the device nodes that a sandbox's processes may open, whatever their rights: a program for
// the kernel's device controller, on the sandbox's group in the unified hierarchy. That exists
// beside v1 controllers too, so one way serves both (Documentation/admin-guide/cgroup-v2.rst,
// "Device controller").
//
// Allowed, for reading and writing: null, zero, full, random, urandom, tty, ptmx and
// pseudo-terminals. mknod always fails; overlay whiteouts do not count as devices.
#pragma once

#include <string>

#include "base/os/fd.h"

namespace moorage::backends {

class DeviceRules {
 public:
  DeviceRules();  // Error(unsupported): kernel or confinement has no device programs
  // Applies as long as the group exists, to it and all groups below.
  void apply(const std::string& unified_group) const;

 private:
  Fd program_;
};

}  // namespace moorage::backends
