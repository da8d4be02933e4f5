// Capabilities of a sandbox's root, on LXC and on an engine with userns-remap: Docker's default
// without raw sockets and device nodes. All of them apply only to the sandbox's own namespace. The
// names are those of capabilities(7) without CAP_.
#pragma once

namespace moorage::launch {

inline constexpr const char* kRootCapabilities[] = {
    "CHOWN",  "DAC_OVERRIDE", "FOWNER",           "FSETID",     "KILL",        "SETGID",
    "SETUID", "SETPCAP",      "NET_BIND_SERVICE", "SYS_CHROOT", "AUDIT_WRITE", "SETFCAP"};

}  // namespace moorage::launch
