// Checks that nobody wrote to a layer while it was read; otherwise the copy may be inconsistent.
#pragma once

#include <string>

#include "base/error.h"
#include "layers/seal/seal.h"

namespace moorage::layers {

class LayerStill {
 public:
  explicit LayerStill(std::string layer) : layer_(std::move(layer)), before_(seal()) {}
  // Returns the seal of the layer as it was read.
  std::string require() const {
    if (const std::string now = seal(); now == before_) return now;
    throw Error(Code::conflict, "something wrote to " + layer_ + " while it was being read",
                "moorage did not write there: find the process, then try again");
  }

 private:
  std::string seal() const {
    return take_seal(layer_, SealLimits{.time = std::chrono::minutes(10)}).hash;
  }
  const std::string layer_;
  const std::string before_;
};

}  // namespace moorage::layers
