// The one directory of Moorage on a machine that is not ours; nothing is written elsewhere. It
// belongs to the user who runs this program and nobody else may enter it, so below it paths can be
// trusted: commands inside a sandbox never see it.
//
//   bin/<sha256>/...        programs, put there by moorage-link
//   trees/<key>/            base trees and git objects (trees.h)
//   sandboxes/<name>/       one sandbox (sandbox.h)
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moorage::outpost {

// Letters, digits, "_", "-", "." and "+", not first a ".", at most 128 bytes.
bool is_name(std::string_view text);

class Directory {
 public:
  // Makes it if it is missing. permission_denied: it belongs to somebody else, or others may enter.
  explicit Directory(std::string path);

  const std::string& path() const { return path_; }
  std::string trees() const { return path_ + "/trees"; }
  std::string tree(const std::string& key) const;      // throws invalid_argument
  std::string sandbox(const std::string& name) const;  // the same
  std::vector<std::string> sandbox_names() const;
  std::vector<std::string> tree_keys() const;

 private:
  const std::string path_;
};

// Makes a directory that only we may enter, if it is missing.
void make_private_directory(const std::string& path);

}  // namespace moorage::outpost
