// Which device nodes the processes of a sandbox may open, whatever their rights: a program of the
// kernel's device controller on the sandbox's group in the unified hierarchy. It is there beside v1
// controllers, too, so there is one way for both (Documentation/admin-guide/cgroup-v2.rst, "Device
// controller").
//
// Allowed: null, zero, full, random, urandom, tty, ptmx and pseudo-terminals, to read and write.
// Nothing can be made with mknod; whiteouts of an overlay are no devices to the kernel.
#pragma once

#include <string>

#include "base/fd.h"

namespace moorage::backends {

class DeviceRules {
 public:
  DeviceRules();  // Error(unsupported): this kernel, or what confines us, has no device programs
  // Lasts as long as the group, for it and all groups below.
  void apply(const std::string& unified_group) const;

 private:
  base::Fd program_;
};

}  // namespace moorage::backends
