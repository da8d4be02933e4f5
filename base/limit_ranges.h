// What the limits of a workspace may be: where a request names them, where the configuration or a
// rule of it gives them, and where an archive brings them. In one place, so that what one host can
// have made another can take in.
#pragma once

#include <cstdint>

namespace moorage::base {

inline constexpr uint64_t kLeastMemoryBytes = 16 << 20;
// A hundredth is the kernel's least quota of one millisecond in its period of 100.
inline constexpr double kLeastCpus = 0.01;
inline constexpr double kMostCpus = 4096;
inline constexpr uint32_t kLeastPids = 4;
// Unless they are 0, which is no limit:
inline constexpr uint64_t kLeastDiskBytes = 1 << 20;
inline constexpr uint64_t kLeastDiskFiles = 100;  // an empty layer has a dozen

}  // namespace moorage::base
