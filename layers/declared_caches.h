// The caches that a workspace's policy declares: paths as seen inside, relative ones below
// /workspace. Collection may remove them, only while the workspace is stopped, and only if they are
// entirely in the writable layer: the base tree and the frozen layers have nothing at that path (so
// git tracks nothing there at the base commit), and overlayfs redirects no directory in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/os/files.h"

namespace moorage::layers {

// Throws invalid_argument: not below /workspace or /home/user, "..", .git, too many.
void check_cache_paths(const std::vector<std::string>& paths);

struct CachePlace {
  std::string part;  // "tree" or "home"
  std::string path;  // relative to that part
};
CachePlace place_of_cache(const std::string& path);

// One removable cache. Requires that nothing in it is open and its upper directory is not mounted.
class DeclaredCache {
 public:
  // `uppers`: the writable layer's first, then those of frozen ones, then the base. Throws conflict
  // with the reason if removal is unsafe.
  DeclaredCache(const std::vector<std::string>& uppers, const std::string& path);
  bool exists() const { return exists_; }
  base::Usage usage() const { return base::tree_usage(place_); }
  void remove() const { base::remove_tree(place_); }

 private:
  std::string place_;  // without symlinks, as nobody else can write there now
  bool exists_ = false;
};

}  // namespace moorage::layers
