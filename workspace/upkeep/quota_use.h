// Arithmetic on the disk use and limit of a workspace (layers/quota/disk_quota.h), for its watcher.
#pragma once

#include <cstdint>
#include <string>

#include "layers/quota/disk_quota.h"

namespace moorage::workspace {

// What an agent writes while it runs `rm`: a shell's history, a moved directory's index.
inline constexpr uint64_t kSlackBytes = 256 << 10;
inline constexpr uint64_t kSlackFiles = 64;

uint64_t minus(uint64_t from, uint64_t what);  // at least 0
layers::QuotaUse minus(const layers::QuotaUse& use, const layers::QuotaUse& less);
layers::QuotaUse plus(const layers::QuotaUse& use, const layers::QuotaUse& more);
bool is_over(const layers::QuotaUse& use, const layers::QuotaLimit& limit);
bool has_grown(const layers::QuotaUse& now,
               const layers::QuotaUse& before);  // by more than the slack
double fullness(const layers::QuotaUse& use,
                const layers::QuotaLimit& limit);  // 1: the limit is reached
std::string text_of(const layers::QuotaUse& use, const layers::QuotaLimit& limit);

}  // namespace moorage::workspace
