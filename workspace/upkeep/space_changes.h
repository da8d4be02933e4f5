// How much free space the store's file system has lost and gained, sampled so often that the two
// hide little of each other. It includes everything that takes space, by written pages or without
// (fallocate, empty files), but not who took it. One statfs per sample.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/os/files.h"
#include "layers/quota/disk_quota.h"

namespace moorage::workspace {

class SpaceMoves {
 public:
  struct Sums {  // of all changes between samples, since the first
    layers::QuotaUse lost{0, 0};
    layers::QuotaUse gained{0, 0};
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
