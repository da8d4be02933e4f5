#include "layers/inside_path.h"

#include <fcntl.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/os/files.h"
#include "layers/node.h"

namespace moorage::layers {
namespace {

constexpr int kMaxLinks = 40;  // the kernel's own limit, path_resolution(7)

// The root that contains an absolute path without links.
std::optional<InsidePlace> place_of(const std::vector<InsideRoot>& roots, const std::string& path) {
  for (const InsideRoot& root : roots) {
    if (path == root.path) return InsidePlace{root.fd, {}};
    if (path.starts_with(root.path + "/"))
      return InsidePlace{root.fd, path.substr(root.path.size() + 1)};
  }
  return std::nullopt;
}

// nullopt: not a link, or it does not exist.
std::optional<std::string> link_target(const InsidePlace& place) {
  Fd fd;
  try {
    fd = base::open_in_root(place.root, place.path, O_PATH | O_NOFOLLOW);
  } catch (const Error& error) {
    if (error.code() == Code::not_found || error.code() == Code::invalid_argument)
      return std::nullopt;
    throw;
  }
  return try_read_link(fd.get(), "");  // ENOENT means that it is not a link
}

// Removes and returns the first part; skips empty parts.
std::string take_part(std::string& rest) {
  const size_t begin = std::min(rest.find_first_not_of('/'), rest.size());
  const size_t end = std::min(rest.find('/', begin), rest.size());
  std::string part = rest.substr(begin, end - begin);
  rest.erase(0, end);
  return part;
}

std::string without_last_part(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

InsidePlace find_inside(const std::vector<InsideRoot>& roots, const std::string& path,
                        bool follow_last) {
  std::string done;  // absolute, without links
  std::string rest = path.starts_with('/') ? path : roots.front().path + "/" + path;
  std::string link;  // the last link followed
  for (int links = 0;;) {
    const std::string part = take_part(rest);
    if (part.empty()) break;
    if (part == ".") continue;
    if (part == "..") {
      done = without_last_part(done);
      continue;
    }
    const bool last = rest.find_first_not_of('/') == std::string::npos;
    const std::string next = done + "/" + part;
    const auto place = place_of(roots, next);
    const bool may_be_link = place && !place->path.empty() && (!last || follow_last);
    const auto target = may_be_link ? link_target(*place) : std::nullopt;
    if (!target) {
      done = next;
      continue;
    }
    if (++links > kMaxLinks) throw Error(Code::invalid_argument, path + ": too many symlinks");
    link = next;
    if (target->starts_with('/')) done.clear();
    rest = *target + rest;
  }
  if (auto place = place_of(roots, done)) return *place;
  const std::string what = link.empty() ? path : path + " (through the link " + link + ")";
  throw Error(Code::invalid_argument, what + " is outside the workspace",
              "use a path below /workspace or /home/user; moorage exec reaches the rest");
}

std::string inside_path(const std::vector<InsideRoot>& roots, const InsidePlace& place) {
  const auto root = std::find_if(roots.begin(), roots.end(),
                                 [&](const InsideRoot& one) { return one.fd == place.root; });
  return root->path + "/" + place.path;
}

}  // namespace moorage::layers
