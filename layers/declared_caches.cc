#include "layers/declared_caches.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/open_beneath.h"
#include "base/os/xattr.h"
#include "base/parts.h"

namespace moorage::layers {
namespace {

constexpr size_t kMostPaths = 64;
constexpr size_t kLongestPath = 1024;
// A larger cache is left to its owner.
constexpr size_t kMostDirectories = 200'000;
constexpr size_t kMostLevels = 200;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(Code::invalid_argument, "the cache '" + path + "' " + why,
              "give a directory below /workspace or /home/user, like node_modules or "
              "/home/user/.cache");
}

[[noreturn]] void keep(const std::string& why) { throw Error(Code::conflict, why); }

bool is_redirected(int directory) {
  return base::read_attribute(directory, "trusted.overlay.redirect").has_value();
}

// Opens the parent of the last component, through real directories only. Empty: it does not exist.
Fd open_parent(const std::string& top, const std::vector<std::string_view>& parts) {
  Fd here = base::path_exists(top) ? base::open_directory(top) : Fd();
  for (size_t i = 0; here && i + 1 < parts.size(); ++i) {
    Fd next = base::try_open_directory_beneath(here.get(), std::string(parts[i]));
    if (!next && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
      base::throw_errno("find a cache");
    if (next && is_redirected(next.get())) keep("one of its parent directories was renamed");
    here = std::move(next);
  }
  return here;
}

bool has(const Fd& parent, const std::string& name) {
  struct stat status {};
  return parent && fstatat(parent.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

// A directory renamed with files of the base in it shows them only through a redirect.
void refuse_redirects(const Fd& parent, const std::string& name) {
  struct Level {
    Fd directory;
    std::deque<std::string> below;
  };
  std::vector<Level> levels;
  size_t seen = 0;
  const auto enter = [&](int at, const std::string& entry) {
    Fd directory = base::try_open_directory_beneath(at, entry);
    if (!directory && errno != ENOTDIR && errno != ELOOP) base::throw_errno("open a cache");
    if (!directory) return;
    if (is_redirected(directory.get())) keep("a directory in it contains files of the base commit");
    if (++seen > kMostDirectories || levels.size() >= kMostLevels)
      keep("it is too large or nested too deeply to be checked");
    Level level{std::move(directory), {}};
    for (std::string& child : base::list_directory(level.directory.get())) {
      struct stat status {};
      const int flags = AT_SYMLINK_NOFOLLOW;
      if (fstatat(level.directory.get(), child.c_str(), &status, flags) == 0 &&
          S_ISDIR(status.st_mode))
        level.below.push_back(std::move(child));
    }
    levels.push_back(std::move(level));
  };
  enter(parent.get(), name);
  while (!levels.empty()) {
    if (levels.back().below.empty()) {
      levels.pop_back();
      continue;
    }
    const std::string child = std::move(levels.back().below.front());
    levels.back().below.pop_front();
    enter(levels.back().directory.get(), child);
  }
}

}  // namespace

CachePlace place_of_cache(const std::string& path) {
  for (const auto& [prefix, part] : {std::pair{"/workspace/", "tree"}, {"/home/user/", "home"}}) {
    if (path.starts_with(prefix)) return {part, path.substr(std::string(prefix).size())};
  }
  return {"tree", path};
}

void check_cache_paths(const std::vector<std::string>& paths) {
  if (paths.size() > kMostPaths) {
    throw Error(Code::invalid_argument,
                "more than " + std::to_string(kMostPaths) + " caches declared");
  }
  for (const std::string& path : paths) {
    if (path.size() > kLongestPath) refuse(path.substr(0, 40) + "...", "has too long a path");
    const CachePlace place = place_of_cache(path);
    const auto parts = base::split(place.path, '/');
    for (const std::string_view part : parts) {
      if (part.empty() || part == "." || part == "..") refuse(path, "is not a plain path");
      if (part.find('\0') != std::string_view::npos) refuse(path, "contains a NUL byte");
    }
    if (place.part == "tree" && parts.front() == ".git") refuse(path, "belongs to git");
  }
}

DeclaredCache::DeclaredCache(const std::vector<std::string>& uppers, const std::string& path)
    : place_(uppers.front() + "/" + path) {
  const auto parts = base::split(path, '/');
  const std::string name(parts.back());
  const Fd parent = open_parent(uppers.front(), parts);
  if (!has(parent, name)) return;
  for (size_t i = 1; i < uppers.size(); ++i) {
    if (has(open_parent(uppers[i], parts), name)) keep("the base commit has files there, too");
  }
  refuse_redirects(parent, name);
  exists_ = true;
}

}  // namespace moorage::layers
