// What root of a sandbox may do, on LXC as on an engine with userns-remap: Docker's default without
// raw sockets and device nodes. All of them are powers over the sandbox's own namespace only. The
// names are those of capabilities(7) without CAP_.
#pragma once

namespace moorage::launch {

inline constexpr const char* kRootCapabilities[] = {
    "CHOWN",  "DAC_OVERRIDE", "FOWNER",           "FSETID",     "KILL",        "SETGID",
    "SETUID", "SETPCAP",      "NET_BIND_SERVICE", "SYS_CHROOT", "AUDIT_WRITE", "SETFCAP"};

}  // namespace moorage::launch
