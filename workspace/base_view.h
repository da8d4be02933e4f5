// A base tree as an overlay shows it, read without a mount: a whole tree, and deltas on it, which
// have whiteouts and opaque directories but no redirects. The files are ours; links are not
// followed.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace moorage::workspace {

class BaseView {
 public:
  // Deltas nearest first.
  BaseView(const std::vector<std::string>& deltas, const std::string& tree);
  // Kind and mode of what is at a path, "" is the root. Empty: nothing.
  std::optional<mode_t> look(const std::string& path) const;

 private:
  std::vector<base::Fd> layers_;  // nearest first
};

}  // namespace moorage::workspace
