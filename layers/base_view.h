// A base tree as an overlay shows it, read without a mount: a whole tree under deltas, which have
// whiteouts and opaque directories but no redirects. The files are our own; links are not followed.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/os/fd.h"

namespace moorage::layers {

class BaseView {
 public:
  // Deltas nearest first.
  BaseView(const std::vector<std::string>& deltas, const std::string& tree);
  // Type and mode of a path ("" is the root). nullopt: it does not exist.
  std::optional<mode_t> find_mode(const std::string& path) const;

 private:
  std::vector<Fd> layers_;  // nearest first
};

}  // namespace moorage::layers
