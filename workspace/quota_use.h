// Arithmetic on the disk use and limit of a workspace (disk_quota.h), for its watcher.
#pragma once

#include <cstdint>
#include <string>

#include "workspace/disk_quota.h"

namespace moorage::workspace {

// What an agent writes while it runs `rm`: a shell's history, a moved directory's index.
inline constexpr uint64_t kSlackBytes = 256 << 10;
inline constexpr uint64_t kSlackFiles = 64;

uint64_t minus(uint64_t from, uint64_t what);  // at least 0
QuotaUse minus(const QuotaUse& use, const QuotaUse& less);
QuotaUse plus(const QuotaUse& use, const QuotaUse& more);
bool is_over(const QuotaUse& use, const QuotaLimit& limit);
bool has_grown(const QuotaUse& now, const QuotaUse& before);    // by more than the slack
double fullness(const QuotaUse& use, const QuotaLimit& limit);  // 1: the limit is reached
std::string text_of(const QuotaUse& use, const QuotaLimit& limit);

}  // namespace moorage::workspace
