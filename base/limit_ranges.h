// The valid ranges of a workspace's limits and leases, for requests, the configuration and its
// rules, and imported archives. They are in one place so that one host accepts every limit of
// another.
#pragma once

#include <cstdint>

namespace moorage::base {

inline constexpr uint64_t kLeastMemoryBytes = 16 << 20;
inline constexpr uint64_t kMostMemoryBytes = 1ULL << 50;
// One hundredth is the kernel's minimum quota: one millisecond in a period of 100.
inline constexpr double kLeastCpus = 0.01;
inline constexpr double kMostCpus = 4096;
inline constexpr uint32_t kLeastPids = 4;
inline constexpr uint32_t kMostPids = 4'194'304;  // the kernel's maximum
// Except 0, which means unlimited:
inline constexpr uint64_t kLeastDiskBytes = 1 << 20;
inline constexpr uint64_t kMostDiskBytes = 1ULL << 50;
inline constexpr uint64_t kLeastDiskFiles = 100;  // an empty layer has a dozen
inline constexpr uint64_t kMostDiskFiles = 4'000'000'000;
// Of a lease: the silence after which it lapses.
inline constexpr int64_t kLeastTtl_s = 5;
inline constexpr int64_t kMostTtl_s = 3600;

}  // namespace moorage::base
