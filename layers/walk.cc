#include "layers/walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "layers/node.h"

namespace moorage::layers {
namespace {

constexpr uint64_t kMaxNames = 1'000'000;
constexpr size_t kMaxNameBytes = 32 << 20;  // in one directory
constexpr size_t kMaxPathBytes = 4095;
constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

// A short name is stored in the string object, a longer one on the heap.
uint64_t memory_of(std::string_view name) {
  constexpr size_t kInline = 15;
  return sizeof(std::string) + (name.size() > kInline ? name.size() + 2 * sizeof(void*) : 0);
}

// The entry has vanished, or become something else, since its name was read.
bool is_change(int error_number) {
  return error_number == ENOENT || error_number == ENOTDIR || error_number == ELOOP ||
         error_number == ESTALE || error_number == ENXIO;
}

}  // namespace

MergedDirectory LayerWalk::root() const {
  MergedDirectory root;
  for (size_t layer = 0; layer < layers_.size(); ++layer) root.uppers.push_back({layer, ""});
  root.base = "";
  return root;
}

Fd LayerWalk::open_below(size_t layer, const std::string& path, int flags) {
  Fd fd = base::try_open_beneath(layers_[layer].get(), path, flags);
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
  Fd fd = open_below(source.layer, source.path, O_RDONLY);
  struct stat status;
  if (fd && (fstat(fd.get(), &status) < 0 || !S_ISREG(status.st_mode))) {
    changed_meanwhile_ = true;
    fd.reset();
  }
  return fd;
}

std::optional<std::string> LayerWalk::read_link(const UpperDirectory& source) {
  Fd fd = open_below(source.layer, source.path, O_PATH);
  auto target = fd ? try_read_link(fd.get(), "") : std::nullopt;
  if (!target) changed_meanwhile_ = true;
  return target;
}

LayerWalk::Open::Open(LayerWalk& walk, const MergedDirectory& directory)
    : walk_(walk), directory_(directory) {
  for (const UpperDirectory& upper : directory.uppers) {
    Fd fd = walk_.open_below(upper.layer, upper.path, kDirectoryFlags);
    if (!fd) continue;
    walk_.read_names(fd, *this);
    const bool marked = has_marked_whiteouts(fd.get());
    levels_.push_back({upper.layer, upper.path, std::move(fd), marked});
  }
  std::sort(names_.begin(), names_.end());
  names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
}

LayerWalk::Open::~Open() {
  if (walk_.memory_ != nullptr) walk_.memory_->give(charged_bytes_);
}

bool LayerWalk::take_incomplete() {
  const bool changed = std::exchange(changed_meanwhile_, false);
  return std::exchange(truncated_, false) || changed;
}

void LayerWalk::read_names(const Fd& directory, Open& open) {
  size_t bytes = 0;
  std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(directory.duplicate().release()), closedir);
  if (!stream) base::throw_errno("list a directory of a layer");
  while (dirent* item = readdir(stream.get())) {
    const std::string_view name = item->d_name;
    if (name == "." || name == "..") continue;
    bytes += name.size();
    const uint64_t cost = memory_of(name);
    if (names_seen_ == kMaxNames || bytes > kMaxNameBytes || (memory_ && !memory_->take(cost))) {
      truncated_ = true;
      return;
    }
    if (memory_) open.charged_bytes_ += cost;
    ++names_seen_;
    open.names_.emplace_back(name);
  }
}

std::optional<MergedEntry> LayerWalk::Open::entry(const std::string& name) {
  NameLookup lookup(name);
  MergedEntry entry;
  entry.directory.path = join_path(directory_.path, name);
  if (entry.directory.path.size() > kMaxPathBytes) {
    walk_.truncated_ = true;
    return std::nullopt;
  }
  const auto take = [&entry](NameLookup::Part part, const UpperNode& node, UpperDirectory where) {
    if (part == NameLookup::Part::node) {
      entry.kind = node.kind;
      entry.executable = node.executable;
      entry.source = std::move(where);
    } else if (part == NameLookup::Part::directory) {
      entry.kind = EntryKind::directory;
      entry.directory.uppers.push_back(std::move(where));
    }
  };
  for (size_t layer = 0; layer < walk_.layers_.size() && !lookup.stopped(); ++layer) {
    if (lookup.from_root()) {
      FoundFromRoot found = search_from_root(walk_.layers_[layer].get(), lookup);
      take(found.part, found.node, {layer, std::move(found.path)});
      continue;
    }
    auto level = std::find_if(levels_.begin(), levels_.end(),
                              [layer](const Level& one) { return one.layer == layer; });
    if (level == levels_.end()) continue;
    const std::string target = lookup.target();
    const UpperNode node = find_upper_node(level->fd.get(), target, level->marked_whiteouts);
    take(lookup.take(node), node, {layer, join_path(level->path, target)});
  }
  if (!lookup.seen()) {
    walk_.changed_meanwhile_ = true;
    return std::nullopt;
  }
  if (entry.kind == EntryKind::directory && !lookup.stopped()) {
    std::optional<std::string> base = lookup.in_base(directory_.base);
    if (base && walk_.is_base_directory_(*base)) entry.directory.base = std::move(base);
  }
  return entry;
}

}  // namespace moorage::layers
