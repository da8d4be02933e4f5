// That nobody writes to a layer while it is read, whoever it is: a file that grew would be torn.
#pragma once

#include <string>

#include "base/error.h"
#include "workspace/layer_seal.h"

namespace moorage::workspace {

class LayerStill {
 public:
  explicit LayerStill(std::string layer) : layer_(std::move(layer)), before_(look()) {}
  // The seal of what was read.
  std::string require() const {
    if (const std::string now = look(); now == before_) return now;
    throw base::Error(base::Code::conflict,
                      "something wrote to " + layer_ + " while it was being read",
                      "nothing of moorage's does: find it, then try again");
  }

 private:
  std::string look() const {
    return take_seal(layer_, SealLimits{.time = std::chrono::minutes(10)}).hash;
  }
  const std::string layer_;
  const std::string before_;
};

}  // namespace moorage::workspace
