#include "workspace/layer_walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files.h"

namespace moorage::workspace {
namespace {

using base::Fd;

constexpr uint64_t kMaxNames = 1'000'000;
constexpr size_t kMaxNameBytes = 32 << 20;  // of one directory
constexpr size_t kMaxPathBytes = 4095;
constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

std::string join(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

std::string attribute(int fd, const char* name) {
  char value[kMaxPathBytes + 1];
  ssize_t size = fgetxattr(fd, name, value, sizeof value);
  return size > 0 ? std::string(value, static_cast<size_t>(size)) : std::string();
}

// Something was there when its name was read and is not any more, or is something else by now.
bool is_change(int error_number) {
  return error_number == ENOENT || error_number == ENOTDIR || error_number == ELOOP ||
         error_number == ESTALE || error_number == ENXIO;
}

enum class NodeType { missing, whiteout, file, symlink, directory, other };

struct Node {
  NodeType type = NodeType::missing;
  bool executable = false;
  bool opaque = false;
  std::string redirect;
};

// In a directory whose opaque mark is "x", an empty file with an attribute stands for a whiteout
// (Linux 6.7).
bool is_marked_whiteout(int directory, const std::string& name) {
  Fd fd(openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  return fd && fgetxattr(fd.get(), "trusted.overlay.whiteout", nullptr, 0) >= 0;
}

Node look(int directory, const std::string& name, bool marked_whiteouts) {
  Node node;
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
    Fd fd(openat(directory, name.c_str(), kDirectoryFlags));
    if (!fd) return node;
    node.type = NodeType::directory;
    node.opaque = attribute(fd.get(), "trusted.overlay.opaque") == "y";
    node.redirect = attribute(fd.get(), "trusted.overlay.redirect");
  } else {
    node.type = NodeType::other;
  }
  return node;
}

EntryKind kind_of(NodeType type) {
  switch (type) {
    case NodeType::file:
      return EntryKind::file;
    case NodeType::symlink:
      return EntryKind::symlink;
    case NodeType::directory:
      return EntryKind::directory;
    case NodeType::other:
      return EntryKind::other;
    case NodeType::missing:
    case NodeType::whiteout:
      break;
  }
  return EntryKind::absent;
}

}  // namespace

// What the kernel keeps in ovl_lookup_data while it goes down the layers for one name.
struct LayerWalk::Lookup {
  std::string target;  // a name in the same directory, or after a redirect "/from/the/root"
  bool stop = false;   // nothing from further down shows through
  bool seen = false;
  MergedEntry entry;

  bool from_root() const { return target.starts_with('/'); }

  // A node on the way to target; `before` and `after` are what stands around its name there.
  void take(const Node& node, UpperDirectory where, const std::string& before,
            const std::string& after) {
    const bool last = after.empty();
    if (node.type == NodeType::missing) return;
    seen |= last;
    if (node.type != NodeType::directory) {
      if (last && node.type != NodeType::whiteout && entry.kind == EntryKind::absent) {
        entry.kind = kind_of(node.type);
        entry.source = std::move(where);
        entry.executable = node.executable;
      }
      stop = true;
      return;
    }
    if (last) {
      entry.kind = EntryKind::directory;
      entry.directory.uppers.push_back(std::move(where));
    }
    if (node.opaque) {
      stop = true;
    } else if (node.redirect.starts_with('/')) {
      target = node.redirect + after;
      stop = false;  // of an opaque directory further up on the way: this one came from elsewhere
    } else if (!node.redirect.empty()) {
      target = before + node.redirect + after;
    }
  }
};

LayerWalk::LayerWalk(const std::vector<std::string>& uppers, IsBaseDirectory is_base_directory)
    : is_base_directory_(std::move(is_base_directory)) {
  for (const std::string& upper : uppers) {
    layers_.push_back(base::open_file(upper, kDirectoryFlags));
  }
}

MergedDirectory LayerWalk::root() const {
  MergedDirectory root;
  for (size_t layer = 0; layer < layers_.size(); ++layer) root.uppers.push_back({layer, ""});
  root.base = "";
  return root;
}

Fd LayerWalk::open_below(size_t layer, const std::string& path, int flags) {
  open_how how{};
  how.flags = static_cast<uint64_t>(static_cast<unsigned>(flags));
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  const char* below = path.empty() ? "." : path.c_str();
  Fd fd(static_cast<int>(syscall(SYS_openat2, layers_[layer].get(), below, &how, sizeof how)));
  if (fd) return fd;
  if (errno == ENAMETOOLONG) {
    truncated_ = true;
  } else if (is_change(errno)) {
    changed_meanwhile_ = true;
  } else {
    base::throw_errno("open " + path + " in a layer");
  }
  return fd;
}

Fd LayerWalk::open_directory(const UpperDirectory& source) {
  return open_below(source.layer, source.path, kDirectoryFlags);
}

Fd LayerWalk::open_file(const UpperDirectory& source) {
  Fd fd = open_below(source.layer, source.path,
                     O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  struct stat status;
  if (fd && (fstat(fd.get(), &status) < 0 || !S_ISREG(status.st_mode))) {
    changed_meanwhile_ = true;
    fd.reset();
  }
  return fd;
}

std::optional<std::string> LayerWalk::read_link(const UpperDirectory& source) {
  Fd fd = open_below(source.layer, source.path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  char target[kMaxPathBytes + 1];
  ssize_t size = fd ? readlinkat(fd.get(), "", target, sizeof target) : -1;
  if (size < 0) {
    changed_meanwhile_ = true;
    return std::nullopt;
  }
  return std::string(target, static_cast<size_t>(size));
}

LayerWalk::Open::Open(LayerWalk& walk, const MergedDirectory& directory)
    : walk_(walk), directory_(directory) {
  for (const UpperDirectory& upper : directory.uppers) {
    Fd fd = walk_.open_below(upper.layer, upper.path, kDirectoryFlags);
    if (!fd) continue;
    walk_.read_names(fd, names_);
    bool marked = attribute(fd.get(), "trusted.overlay.opaque") == "x";
    levels_.push_back({upper.layer, upper.path, std::move(fd), marked});
  }
  std::sort(names_.begin(), names_.end());
  names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
}

void LayerWalk::read_names(const Fd& directory, std::vector<std::string>& names) {
  size_t bytes = 0;
  std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(directory.duplicate().release()), closedir);
  if (!stream) base::throw_errno("list a directory of a layer");
  while (dirent* item = readdir(stream.get())) {
    const std::string_view name = item->d_name;
    if (name == "." || name == "..") continue;
    bytes += name.size();
    if (names_seen_ == kMaxNames || bytes > kMaxNameBytes) {
      truncated_ = true;
      return;
    }
    ++names_seen_;
    names.emplace_back(name);
  }
}

std::optional<MergedEntry> LayerWalk::Open::entry(const std::string& name) {
  Lookup lookup;
  lookup.target = name;
  lookup.entry.directory.path = join(directory_.path, name);
  if (lookup.entry.directory.path.size() > kMaxPathBytes) {
    walk_.truncated_ = true;
    return std::nullopt;
  }
  for (size_t layer = 0; layer < walk_.layers_.size() && !lookup.stop; ++layer) {
    if (lookup.from_root()) {
      walk_.search_from_root(layer, lookup);
      continue;
    }
    auto level = std::find_if(levels_.begin(), levels_.end(),
                              [layer](const Level& one) { return one.layer == layer; });
    if (level == levels_.end()) continue;
    const std::string target = lookup.target;
    lookup.take(look(level->fd.get(), target, level->marked_whiteouts),
                {layer, join(level->path, target)}, "", "");
  }
  if (!lookup.seen) {
    walk_.changed_meanwhile_ = true;
    return std::nullopt;
  }
  if (lookup.entry.kind == EntryKind::directory && !lookup.stop) {
    std::optional<std::string> base;
    if (lookup.from_root()) {
      base = lookup.target.substr(1);
    } else if (directory_.base) {
      base = join(*directory_.base, lookup.target);
    }
    if (base && walk_.is_base_directory_(*base)) lookup.entry.directory.base = std::move(base);
  }
  return std::move(lookup.entry);
}

// A redirect from the root is looked up part by part. Each directory on the way may itself be
// redirected: that rewrites the target for the layers below this one. Counted from the end, as only
// the front changes.
void LayerWalk::search_from_root(size_t layer, Lookup& lookup) {
  Fd directory = layers_[layer].duplicate();
  std::string path;
  for (size_t rest = lookup.target.size() - 1;;) {
    const std::string target = lookup.target;
    const size_t start = target.size() - rest;
    const size_t end = std::min(target.find('/', start), target.size());
    const std::string name = target.substr(start, end - start);
    const std::string after = target.substr(end);
    const Node node = look(directory.get(), name, false);
    path = join(path, name);
    lookup.take(node, {layer, path}, target.substr(0, start), after);
    if (node.type != NodeType::directory || after.empty()) return;
    directory = Fd(openat(directory.get(), name.c_str(), kDirectoryFlags));
    if (!directory) {
      changed_meanwhile_ = true;
      return;
    }
    rest = after.size() - 1;
  }
}

}  // namespace moorage::workspace
