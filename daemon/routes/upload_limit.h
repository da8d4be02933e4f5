// The limit of a body that becomes a file: the setting api.max_body_bytes, and the room on the
// disk.
#pragma once

#include <functional>
#include <utility>

#include "base/error.h"
#include "workspace/context/context.h"

namespace moorage::daemon {

class UploadLimit {
 public:
  // `require_room` throws if that many more bytes do not fit.
  UploadLimit(const workspace::Options& options, std::function<void(size_t)> require_room)
      : max_bytes_(options.upload_max_bytes), require_room_(std::move(require_room)) {}
  void add(size_t bytes) {
    seen_ += bytes;
    if (seen_ <= max_bytes_) return require_room_(bytes);
    throw base::Error(base::Code::invalid_argument,
                      "the body is larger than " + std::to_string(max_bytes_) + " bytes",
                      "the limit is the setting api.max_body_bytes");
  }

 private:
  const uint64_t max_bytes_;
  const std::function<void(size_t)> require_room_;
  uint64_t seen_ = 0;
};

}  // namespace moorage::daemon
