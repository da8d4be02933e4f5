#include "layers/overlay_lookup.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "base/os/xattr.h"

namespace moorage::layers {
namespace {

std::optional<std::string> read_mark(int fd, const char* name, OverlayMarks marks) {
  const char* const prefix = marks == OverlayMarks::user ? "user.overlay." : "trusted.overlay.";
  return base::read_attribute(fd, std::string(prefix) + name);
}

bool is_marked_whiteout(int directory, const std::string& name, OverlayMarks marks) {
  const Fd fd = base::try_open_regular_beneath(directory, name, O_RDONLY);
  return fd && read_mark(fd.get(), "whiteout", marks);
}

}  // namespace

bool has_marked_whiteouts(int directory, OverlayMarks marks) {
  return read_mark(directory, "opaque", marks) == "x";
}

bool is_opaque(int directory, OverlayMarks marks) {
  return read_mark(directory, "opaque", marks) == "y";
}

std::vector<Fd> open_uppers(const std::vector<std::string>& paths) {
  std::vector<Fd> opened;
  for (const std::string& path : paths)
    opened.push_back(base::open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  return opened;
}

std::string join_path(const std::string& directory, const std::string& name) {
  return directory + (directory.empty() || name.empty() ? "" : "/") + name;
}

std::optional<std::string> NameLookup::in_base(const std::optional<std::string>& directory) const {
  if (from_root()) return target_.substr(1);
  return directory ? std::optional(join_path(*directory, target_)) : std::nullopt;
}

UpperNode find_upper_node(int directory, const std::string& name, bool marked_whiteouts,
                          OverlayMarks marks) {
  UpperNode node;
  struct stat& status = node.status;
  if (name.empty() || name == "." || name == ".." ||
      fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) < 0) {
    return node;
  }
  if (S_ISCHR(status.st_mode) && status.st_rdev == 0) {
    node.kind = EntryKind::absent;
  } else if (S_ISREG(status.st_mode)) {
    bool marked =
        marked_whiteouts && status.st_size == 0 && is_marked_whiteout(directory, name, marks);
    node.kind = marked ? EntryKind::absent : EntryKind::file;
    node.executable = status.st_mode & S_IXUSR;
  } else if (S_ISLNK(status.st_mode)) {
    node.kind = EntryKind::symlink;
  } else if (S_ISDIR(status.st_mode)) {
    node.directory = base::try_open_directory_beneath(directory, name);
    if (!node.directory) return node;
    node.kind = EntryKind::directory;
    const int fd = node.directory.get();
    node.opaque = is_opaque(fd, marks);
    node.redirect = read_mark(fd, "redirect", marks).value_or("");
  } else {
    node.kind = EntryKind::other;
  }
  node.there = true;
  return node;
}

NameLookup::Part NameLookup::take(const UpperNode& node, const std::string& before,
                                  const std::string& after) {
  const bool last = after.empty();
  if (!node.there) return Part::nothing;
  seen_ |= last;
  if (node.kind != EntryKind::directory) {
    stopped_ = true;
    if (!last || node.kind == EntryKind::absent || found_) return Part::nothing;
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
FoundFromRoot search_from_root(int layer, NameLookup& lookup, OverlayMarks marks) {
  FoundFromRoot found;
  Fd above;
  int directory = layer;
  for (size_t rest = lookup.target().size() - 1;;) {
    const std::string target = lookup.target();
    const size_t start = target.size() - rest;
    const size_t end = std::min(target.find('/', start), target.size());
    const std::string name = target.substr(start, end - start);
    const std::string after = target.substr(end);
    found.node = find_upper_node(directory, name, false, marks);
    found.path += (found.path.empty() ? "" : "/") + name;
    found.part = lookup.take(found.node, target.substr(0, start), after);
    if (found.node.kind != EntryKind::directory || after.empty()) return found;
    above = std::move(found.node.directory);
    directory = above.get();
    rest = after.size() - 1;
  }
}

}  // namespace moorage::layers
