// How much free space the store's file system has lost and gained, looked at so often that the two
// hide little of each other. Whatever takes space is in it, by a written page or without one
// (fallocate, empty files); whose it is, it does not know. One statfs a look.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/files.h"
#include "workspace/disk_quota.h"

namespace moorage::workspace {

class SpaceMoves {
 public:
  struct Sums {  // of all that was seen from one look to the next, since the first one
    QuotaUse lost{0, 0};
    QuotaUse gained{0, 0};
  };
  explicit SpaceMoves(std::string path) : path_(std::move(path)) {}
  Sums look();

 private:
  const std::string path_;
  std::mutex mutex_;
  std::optional<base::Space> last_;
  Sums sums_;
};

}  // namespace moorage::workspace
