// What became of a sandbox there, in files of its directory here, so that each worker knows it:
// base::kLinkBegun once it has started, base::kLinkGone with the reason when it is lost for good.
#pragma once

#include <string>

namespace moorage::link {

class Fate {
 public:
  explicit Fate(std::string directory) : directory_(std::move(directory)) {}

  void set_begun() const;
  bool begun() const;
  // `reason` may come from the machine.
  void set_gone(const std::string& reason) const;

 private:
  const std::string directory_;
};

}  // namespace moorage::link
