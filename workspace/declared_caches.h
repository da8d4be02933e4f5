// What a workspace's policy calls a cache: paths as seen inside, relative ones below /workspace.
// Collection may remove them, at rest only, and only what lies wholly in the writable layer:
// nothing that the base tree or a frozen layer has under that path (so nothing that git tracks at
// the base commit), and no directory that overlayfs redirects below.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"

namespace moorage::workspace {

// Throws invalid_argument: not below /workspace or /home/user, "..", .git, too many.
void check_cache_paths(const std::vector<std::string>& paths);

struct CachePlace {
  std::string part;  // "tree" or "home"
  std::string path;  // below it
};
CachePlace place_of_cache(const std::string& path);

// A cache as it can be removed. Nothing in it is open; no mount of its upper directory may exist.
class DeclaredCache {
 public:
  // `uppers`: that of the writable layer first, then those of frozen ones, and the base. Throws
  // conflict where it is not safe to remove, with the reason.
  DeclaredCache(const std::vector<std::string>& uppers, const std::string& path);
  bool exists() const { return exists_; }
  base::Usage usage() const;
  void remove() const;

 private:
  std::string parent_;  // of real directories only, as nobody else can write there now
  std::string name_;
  bool exists_ = false;
};

}  // namespace moorage::workspace
