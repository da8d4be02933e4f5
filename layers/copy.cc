#include "layers/copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/background.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "layers/change_time.h"
#include "layers/copy_record.h"
#include "layers/node_copy.h"

namespace moorage::layers {
namespace {

constexpr std::array kParts{"tree", "home", "system"};
constexpr unsigned kMaxDepth = 900;  // of directories: each takes three descriptors
constexpr size_t kMaxLinkPathBytes = 4000;
constexpr uint64_t kMaxRecordBytes = 1ULL << 30;
// Limit for data written since the last pass: a frozen sandbox must not wait for the disk.
constexpr off_t kCopiedFrozenBytes = 1 << 20;

// The change time to compare at a later check; 0 if another change could leave it the same.
int64_t change_stamp(const struct stat& status, int64_t looked_ns) {
  const int64_t changed = nanoseconds(status.st_ctim);
  return changed + kTickNs < looked_ns ? changed : 0;
}

// One directory in its three locations.
struct Place {
  Fd live;
  Fd copy;
  Fd earlier;  // may be empty
  std::string path;
  unsigned depth = 0;
};

Fd open_directory_at(const Fd& parent, const std::string& name) {
  if (!parent) return {};
  return base::try_open_directory_beneath(parent.get(), name);
}

const RecordedEntry* find(const RecordedDirectory* directory, const std::string& name) {
  if (!directory) return nullptr;
  const auto found = directory->entries.find(name);
  return found == directory->entries.end() ? nullptr : &found->second;
}

const RecordedDirectory* below(const RecordedEntry* entry) {
  return entry ? entry->directory.get() : nullptr;
}

// One part of the layer.
class Part {
 public:
  Part(const LayerCopy::Places& places, const std::string& part, const CopyLimits& limits)
      : limits_(limits),
        live_(places.live + "/" + part + "/upper"),
        copy_(places.copy + "/" + part + "/upper"),
        record_path_(places.copy + "/" + part + "/copied") {
    if (places.earlier.empty()) return;
    const std::string earlier = places.earlier + "/" + part;
    const auto text = base::read_file_if_exists(earlier + "/copied", kMaxRecordBytes);
    if (text) earlier_record_ = parse_record(*text);
    if (earlier_record_) earlier_ = earlier + "/upper";
  }

  // `mapped`: seen as mapped in any check so far, the last of which began at `looked_ns`.
  void run(CopyPass& pass, const std::set<ino_t>& mapped, int64_t looked_ns, bool frozen) {
    pass_ = &pass;
    mapped_ = &mapped;
    mapped_looked_ns_ = looked_ns;
    frozen_ = frozen;
    fresh_links_.clear();
    Place root{base::open_directory(live_), base::open_directory(copy_), {}, "", 0};
    if (!earlier_.empty()) root.earlier = base::open_directory(earlier_);
    copy_root_ = root.copy.get();
    top_.directory =
        top_.directory ? std::move(top_.directory) : std::make_unique<RecordedDirectory>();
    enter(root, top_, earlier_record_ ? &*earlier_record_ : nullptr);
  }

  void keep_record() { base::write_file(record_path_, format_record(*top_.directory)); }

 private:
  // A file with several names (the kernel also makes whiteouts so): its path in the copy, and the
  // change time that the copy corresponds to.
  struct Linked {
    int64_t stamp;
    std::string path;
  };

  // While commands run, the next pass checks again.
  void vanished(const std::string& path) const {
    if (!frozen_) return;
    throw Error(Code::conflict, base::escape_for_message(path) + " changed during the freeze",
                "a process on the host writes into the layer: find it, then try again");
  }

  bool same(const RecordedEntry* known, const struct stat& now) const {
    return known && known->inode == now.st_ino && known->changed_ns != 0 &&
           known->changed_ns == nanoseconds(now.st_ctim);
  }

  void enter(const Place& at, RecordedEntry& entry, const RecordedDirectory* earlier) {
    struct stat status {};
    const int64_t looked_ns = kernel_time();
    base::check(fstat(at.live.get(), &status), "inspect a directory of the layer");
    const bool unchanged = same(&entry, status);
    entry.inode = status.st_ino;
    entry.changed_ns = change_stamp(status, looked_ns);  // before it is listed
    const bool wrote = visit(at, *entry.directory, earlier, unchanged);
    if (wrote || !unchanged) complete_copy(at.live.get(), at.copy.get(), status);
  }

  // Returns whether it wrote to the copy's directory.
  bool visit(const Place& at, RecordedDirectory& record, const RecordedDirectory* earlier,
             bool unchanged) {
    bool wrote = false;
    std::vector<std::string> names;
    if (unchanged) {
      for (const auto& [name, entry] : record.entries) names.push_back(name);
    } else {
      names = list(at);
      std::vector<std::string> gone;
      auto next = names.begin();
      for (const auto& [name, entry] : record.entries) {
        while (next != names.end() && *next < name) ++next;
        if (next == names.end() || *next != name) gone.push_back(name);
      }
      for (const std::string& name : gone) drop(at, record, name);
      wrote = !gone.empty();
    }
    for (const std::string& name : names) wrote |= take(at, record, earlier, name);
    return wrote;
  }

  std::vector<std::string> list(const Place& at) const {
    try {
      return base::list_directory(at.live.get());
    } catch (const Error& error) {
      if (error.code() != Code::not_found) throw;
      vanished(at.path);  // removed after it was opened
      return {};
    }
  }

  void drop(const Place& at, RecordedDirectory& record, const std::string& name) {
    const auto found = record.entries.find(name);
    if (found == record.entries.end()) return;
    forget_links(found->second, at.path + name);
    record.entries.erase(found);
    base::remove_tree_at(at.copy.get(), name);
    ++pass_->removed;
  }

  // Another file may take the path next.
  void forget_links(const RecordedEntry& entry, const std::string& path) {
    const auto found = links_.find(entry.inode);
    if (found != links_.end() && found->second.path == path) links_.erase(found);
    if (!entry.directory) return;
    for (const auto& [name, inner] : entry.directory->entries)
      forget_links(inner, path + "/" + name);
  }

  bool take(const Place& at, RecordedDirectory& record, const RecordedDirectory* earlier,
            const std::string& name) {
    struct stat now {};
    if (fstatat(at.live.get(), name.c_str(), &now, AT_SYMLINK_NOFOLLOW) < 0) {
      if (errno != ENOENT) base::throw_errno("stat " + base::escape_for_message(name));
      vanished(at.path + name);
      drop(at, record, name);
      return true;
    }
    if (++pass_->entries > limits_.max_entries) {
      throw Error(Code::resource_exhausted,
                  "more than " + std::to_string(limits_.max_entries) +
                      " changed files: too many to copy while commands run",
                  "stop the sandbox first: then nothing needs to be copied");
    }
    const RecordedEntry* known = find(&record, name);
    if (S_ISDIR(now.st_mode)) return take_directory(at, record, earlier, name, now);
    if (same(known, now) && !known->directory && !is_mapped(now) && joined(at, name, now))
      return false;
    take_node(at, record, find(earlier, name), name, now);
    return true;
  }

  // Whether a file already in the copy shares an inode with its other names there. Names taken in
  // this pass (a directory was moved) may be separate files.
  bool joined(const Place& at, const std::string& name, const struct stat& now) {
    if (now.st_nlink < 2 || S_ISCHR(now.st_mode)) return true;  // whiteouts are interchangeable
    const auto found = links_.find(now.st_ino);
    if (found == links_.end() || !holds(found->second, now)) {
      remember_link(at, name, now, nanoseconds(now.st_ctim));
      return true;
    }
    struct stat here {
    }, there{};
    return fstatat(at.copy.get(), name.c_str(), &here, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(copy_root_, found->second.path.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           here.st_ino == there.st_ino;
  }

  bool is_mapped(const struct stat& now) const { return frozen_ && mapped_->count(now.st_ino) > 0; }

  bool take_directory(const Place& at, RecordedDirectory& record, const RecordedDirectory* earlier,
                      const std::string& name, const struct stat& now) {
    if (at.depth >= kMaxDepth) {
      throw Error(
          Code::resource_exhausted,
          "directories are nested deeper than " + std::to_string(kMaxDepth) + ": too deep to copy",
          "stop the sandbox first: then nothing needs to be copied");
    }
    const RecordedEntry* known = find(&record, name);
    bool made = false;
    if (!known || !known->directory || known->inode != now.st_ino) {
      drop(at, record, name);
      base::check(mkdirat(at.copy.get(), name.c_str(), 0700), "create a directory in a copy");
      record.entries[name] = {now.st_ino, 0, std::make_unique<RecordedDirectory>()};
      made = true;
    }
    Place inner{open_directory_at(at.live, name), open_directory_at(at.copy, name),
                open_directory_at(at.earlier, name), at.path + name + "/", at.depth + 1};
    base::check(inner.copy.get(), "open a directory in a copy");
    if (!inner.live) {
      vanished(inner.path);
      drop(at, record, name);
      return true;
    }
    const RecordedEntry* before = inner.earlier ? find(earlier, name) : nullptr;
    enter(inner, record.entries[name], below(before));
    return made;
  }

  void take_node(const Place& at, RecordedDirectory& record, const RecordedEntry* before,
                 const std::string& name, const struct stat& now) {
    drop(at, record, name);
    auto stamp = link_again(at, name, now);
    if (!stamp) stamp = link_earlier(at, before, name, now);
    if (!stamp) stamp = copy(at, name);
    if (!stamp) return vanished(at.path + name);
    record.entries[name] = {now.st_ino, *stamp};
  }

  // The next three return the change time of the copied state, or nullopt if they did nothing.
  std::optional<int64_t> copy(const Place& at, const std::string& name) {
    const int64_t looked_ns = kernel_time();
    const auto made =
        copy_node({at.live.get(), at.copy.get(), name, name, frozen_ ? kCopiedFrozenBytes : 0});
    if (!made) return std::nullopt;
    if (S_ISREG(made->status.st_mode)) {
      ++pass_->copied_files;
      pass_->copied_bytes += made->bytes;
    }
    // In a frozen sandbox no new mapping appears.
    const int64_t present_ns = frozen_ ? looked_ns : std::min(looked_ns, mapped_looked_ns_);
    const int64_t stamp = is_mapped(made->status) ? 0 : change_stamp(made->status, present_ns);
    remember_link(at, name, made->status, stamp);
    return stamp;
  }

  std::optional<int64_t> link_earlier(const Place& at, const RecordedEntry* before,
                                      const std::string& name, const struct stat& now) {
    if (!at.earlier || !same(before, now) || is_mapped(now)) return std::nullopt;
    if (linkat(at.earlier.get(), name.c_str(), at.copy.get(), name.c_str(), 0) < 0) {
      // EXDEV: the layers are btrfs subvolumes, where a copy shares contents anyway.
      if (errno == EMLINK || errno == ENOENT || errno == EXDEV) return std::nullopt;
      base::throw_errno("link to a file of an earlier copy");
    }
    ++pass_->linked_files;
    remember_link(at, name, now, before->changed_ns);
    return before->changed_ns;
  }

  // Adds another name for a file that the copy already has.
  std::optional<int64_t> link_again(const Place& at, const std::string& name,
                                    const struct stat& now) {
    if (now.st_nlink < 2) return std::nullopt;
    const auto found = links_.find(now.st_ino);
    if (found == links_.end()) return std::nullopt;
    if (!holds(found->second, now)) return std::nullopt;
    const auto& [stamp, path] = found->second;
    if (linkat(copy_root_, path.c_str(), at.copy.get(), name.c_str(), 0) == 0) return stamp;
    if (errno != ENOENT && errno != ENOTDIR && errno != EMLINK)
      base::throw_errno("link to a file of the copy");
    return std::nullopt;
  }

  // A file copied while its change time was the present may have changed since, but not within a
  // frozen pass.
  bool holds(const Linked& linked, const struct stat& now) const {
    if (frozen_ && fresh_links_.count(now.st_ino) > 0) return true;
    return linked.stamp == nanoseconds(now.st_ctim) && !is_mapped(now);
  }

  void remember_link(const Place& at, const std::string& name, const struct stat& status,
                     int64_t stamp) {
    if (status.st_nlink < 2 || at.path.size() + name.size() > kMaxLinkPathBytes) return;
    links_[status.st_ino] = {stamp, at.path + name};
    fresh_links_.insert(status.st_ino);
  }

  const CopyLimits limits_;
  const std::string live_;
  const std::string copy_;
  const std::string record_path_;
  std::string earlier_;
  std::optional<RecordedDirectory> earlier_record_;
  RecordedEntry top_;
  std::map<ino_t, Linked> links_;
  std::set<ino_t> fresh_links_;  // made in this pass
  int copy_root_ = -1;
  CopyPass* pass_ = nullptr;
  const std::set<ino_t>* mapped_ = nullptr;
  int64_t mapped_looked_ns_ = 0;
  bool frozen_ = false;
};

}  // namespace

struct LayerCopy::State {
  Mapped look;
  std::vector<std::unique_ptr<Part>> parts = {};
  std::set<ino_t> mapped = {};  // at any check

  CopyPass run(bool frozen) {
    CopyPass pass;
    const int64_t looked_ns = kernel_time();
    mapped.merge(look());
    for (const auto& part : parts) part->run(pass, mapped, looked_ns, frozen);
    return pass;
  }
};

LayerCopy::LayerCopy(const Places& places, Mapped mapped, const CopyLimits& limits)
    : state_(std::make_unique<State>(State{std::move(mapped)})) {
  for (const char* part : kParts)
    state_->parts.push_back(std::make_unique<Part>(places, part, limits));
}

LayerCopy::~LayerCopy() = default;

CopyPass LayerCopy::pass() {
  const base::Background background;
  return state_->run(false);
}

CopyPass LayerCopy::finish() { return state_->run(true); }

void LayerCopy::keep_record() {
  const base::Background background;
  for (const auto& part : state_->parts) part->keep_record();
}

}  // namespace moorage::layers
