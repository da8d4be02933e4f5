// The system calls that a sandbox may make, in two filters of which the stricter answer counts.
//
// The allowlist is our BPF program, installed on moorage-launch before it calls liblxc, so LXC's
// monitor and all descendants have it too. An unnamed call returns ENOSYS, as on an older kernel,
// so that a C library trying a new call falls back to the old one; a deliberately refused call
// returns EPERM. Programs for another architecture (32 bits, x32) find no call at all. LXC itself
// needs some calls (mount, unshare, setns...); LXC's own policy removes those last, just before
// process 1 of the sandbox is executed. The whole list as an LXC policy cost 22 ms per start, since
// libseccomp adds each rule for three architectures; these two cost 1 to 3 ms.
//
// With the sandbox's capabilities (root_capabilities.h) this permits about as much as Docker's
// default, minus io_uring, process_vm_*, userfaultfd, AF_ALG, AF_VSOCK and 32-bit programs.
#pragma once

#include <string>

namespace moorage::launch {

// For the rest of this process's life, and for all its children.
void install_allowlist();

// The text of LXC's policy file: the calls removed after LXC's set-up. With nested namespaces, the
// calls to create and mount in them stay, for rootless containers and browser sandboxes.
std::string late_policy(bool nested_namespaces);

// The same removal as a second filter, for a program that sets up the sandbox without LXC.
void install_late_denylist();

}  // namespace moorage::launch
