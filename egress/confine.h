// moorage-egress reads what hostile programs and servers send, so it gives up everything that it
// does not need before the first byte: all files (its root is an empty file system, with the
// kernel's random device alone), all capabilities, its user, and most system calls. What is left to
// somebody who takes it over is what one sandbox's connections need: sockets of the internet, and
// the policy of that sandbox.
#pragma once

#include <cstdint>

namespace moorage::egress {

struct Confinement {
  uint32_t uid = 0;                      // a user and group that nothing else on the host has
  uint64_t memory_bytes = 256ULL << 20;  // of address space
  uint64_t open_files = 16384;
};

// For the rest of this process's life. Throws if any of it cannot be done. Needs root.
void confine(const Confinement& confinement);

}  // namespace moorage::egress
