// A test's own directory below $TMPDIR or /tmp, removed at the end (with plain rm, so that no test
// of remove_tree depends on remove_tree).
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "base/error.h"

namespace moorage::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    const char* parent = getenv("TMPDIR");
    std::string pattern = std::string(parent ? parent : "/tmp") + "/moorage-base-XXXXXX";
    if (!mkdtemp(pattern.data())) base::throw_errno("create " + pattern);
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The name of the Error code that `call` throws.
template <typename Call>
std::string code_thrown_by(Call call) {
  try {
    call();
  } catch (const base::Error& error) {
    return std::string(base::code_name(error.code()));
  }
  return "nothing thrown";
}

}  // namespace moorage::test
