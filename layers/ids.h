// Ids inside a sandbox, the same in every image and on every backend.
#pragma once

#include <cstdint>

namespace moorage::layers {

inline constexpr uint32_t kUser = 1000;            // the agent's user
inline constexpr uint32_t kIdsPerSandbox = 65536;  // length of a sandbox's range of ids on the host

}  // namespace moorage::layers
