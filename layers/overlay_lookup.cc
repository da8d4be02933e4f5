#include "layers/overlay_lookup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "base/os/open_beneath.h"

namespace moorage::layers {
namespace {

using base::Fd;

std::string attribute(int fd, const char* name) {
  char value[PATH_MAX];
  const ssize_t size = fgetxattr(fd, name, value, sizeof value);
  return size > 0 ? std::string(value, static_cast<size_t>(size)) : std::string();
}

bool is_marked_whiteout(int directory, const std::string& name) {
  const Fd fd = base::try_open_regular_beneath(directory, name, O_RDONLY);
  return fd && fgetxattr(fd.get(), "trusted.overlay.whiteout", nullptr, 0) >= 0;
}

}  // namespace

bool has_marked_whiteouts(int directory) {
  return attribute(directory, "trusted.overlay.opaque") == "x";
}

UpperNode look_at_node(int directory, const std::string& name, bool marked_whiteouts) {
  UpperNode node;
  struct stat status;
  if (name.empty() || name == "." || name == ".." ||
      fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) < 0) {
    return node;
  }
  if (S_ISCHR(status.st_mode) && status.st_rdev == 0) {
    node.type = NodeType::whiteout;
  } else if (S_ISREG(status.st_mode)) {
    bool marked = marked_whiteouts && status.st_size == 0 && is_marked_whiteout(directory, name);
    node.type = marked ? NodeType::whiteout : NodeType::file;
    node.executable = status.st_mode & S_IXUSR;
  } else if (S_ISLNK(status.st_mode)) {
    node.type = NodeType::symlink;
  } else if (S_ISDIR(status.st_mode)) {
    node.directory = base::try_open_directory_beneath(directory, name);
    if (!node.directory) return node;
    node.type = NodeType::directory;
    node.opaque = attribute(node.directory.get(), "trusted.overlay.opaque") == "y";
    node.redirect = attribute(node.directory.get(), "trusted.overlay.redirect");
  } else {
    node.type = NodeType::other;
  }
  return node;
}

NameLookup::Part NameLookup::take(const UpperNode& node, const std::string& before,
                                  const std::string& after) {
  const bool last = after.empty();
  if (node.type == NodeType::missing) return Part::nothing;
  seen_ |= last;
  if (node.type != NodeType::directory) {
    stopped_ = true;
    if (!last || node.type == NodeType::whiteout || found_) return Part::nothing;
    found_ = true;
    return Part::node;
  }
  if (node.opaque) {
    stopped_ = true;
  } else if (node.redirect.starts_with('/')) {
    target_ = node.redirect + after;
    stopped_ = false;  // clears an opaque parent on the path: this directory came from elsewhere
  } else if (!node.redirect.empty()) {
    target_ = before + node.redirect + after;
  }
  if (!last) return Part::nothing;
  found_ = true;
  return Part::directory;
}

// Positions in the target count from its end, because only the front changes.
FoundFromRoot search_from_root(int layer, NameLookup& lookup) {
  FoundFromRoot found;
  Fd above;
  int directory = layer;
  for (size_t rest = lookup.target().size() - 1;;) {
    const std::string target = lookup.target();
    const size_t start = target.size() - rest;
    const size_t end = std::min(target.find('/', start), target.size());
    const std::string name = target.substr(start, end - start);
    const std::string after = target.substr(end);
    found.node = look_at_node(directory, name, false);
    found.path += (found.path.empty() ? "" : "/") + name;
    found.part = lookup.take(found.node, target.substr(0, start), after);
    if (found.node.type != NodeType::directory || after.empty()) return found;
    above = std::move(found.node.directory);
    directory = above.get();
    rest = after.size() - 1;
  }
}

}  // namespace moorage::layers
