// The system calls that a sandbox may make, in two filters whose strictest answer counts.
//
// The allowlist is a BPF program of ours, put on moorage-launch before it calls liblxc, so LXC's
// monitor and all that comes from it has it, too. A call that is not named answers ENOSYS, as if
// the kernel were older, so that a C library which tries a new call falls back to the old one; a
// call that is refused for a reason answers EPERM. Programs for another architecture (32 bits, x32)
// find no call at all. LXC needs some calls itself (mount, unshare, setns...); LXC's own policy
// takes those away last, just before process 1 of the sandbox is executed. The whole list as an LXC
// policy cost 22 ms a start, since libseccomp adds each rule for three architectures; these two
// cost 1 to 3 ms.
//
// With the capabilities that a sandbox keeps (root_capabilities.h) this permits about what Docker's
// default does, less: io_uring, process_vm_*, userfaultfd, AF_ALG, AF_VSOCK, 32-bit programs.
#pragma once

#include <string>

namespace moorage::launch {

// For the rest of this process's life, and of all its children.
void install_allowlist();

// The text of LXC's policy file: what is taken away after LXC's set-up. With nested namespaces the
// calls stay that make them and mount inside them: for rootless containers and browsers' sandboxes.
std::string late_policy(bool nested_namespaces);

}  // namespace moorage::launch
