#include "packs/layer_to_tar.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "base/os/xattr.h"
#include "base/parts.h"
#include "layers/ids.h"
#include "layers/sorted_names.h"
#include "layers/walk.h"
#include "packs/attributes.h"
#include "packs/link_table.h"

namespace moorage::packs {
namespace {

constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NOATIME;
constexpr size_t kMaxExtents = 50'000;  // beyond this, small holes are filled to reduce the number
constexpr uint64_t kSmallBytes = 64 << 10;
// Limits the names of all directories read at the same time, and of one piece of them.
constexpr uint64_t kNamesBytes = 12 << 20;
constexpr uint64_t kLeastPieceBytes = 32 << 10;
constexpr uint64_t kMostPieceBytes = 4 << 20;

std::string overlay_mark(int fd, const char* name) {
  return base::read_attribute(fd, name).value_or("");
}

// The parts of a file that hold data. Holes smaller than `least_hole` count as data.
std::vector<Extent> find_extents(int fd, uint64_t size, uint64_t least_hole) {
  std::vector<Extent> extents;
  for (auto next = layers::next_data(fd, 0, size); next;) {
    const uint64_t end = next->offset + next->bytes;
    if (!extents.empty() &&
        next->offset - (extents.back().offset + extents.back().bytes) < least_hole) {
      extents.back().bytes = end - extents.back().offset;
    } else {
      extents.push_back(*next);
    }
    next = layers::next_data(fd, end, size);
  }
  return extents;
}

[[noreturn]] void fail(const LayerPart& part, Code code, const std::string& path,
                       const std::string& why) {
  throw Error(code, base::escape_for_message(layers::join_path(part.prefix, path)) + " " + why);
}

void require_depth(const LayerPart& part, const std::string& path, unsigned depth) {
  if (depth <= kMaxArchiveDepth) return;
  fail(part, Code::unsupported, path.substr(0, 200) + "...",
       "is nested deeper than " + std::to_string(kMaxArchiveDepth) + " directories");
}

// Checks this directory of the part and all below it.
void require_depth_below(const LayerPart& part, const Fd& directory, const std::string& path,
                         unsigned depth) {
  require_depth(part, path, depth);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(directory.duplicate().release()),
                                                   closedir);
  if (!stream) base::throw_errno("list a directory of a layer");
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(stream.get());
    if (!entry && errno != 0) base::throw_errno("list a directory of a layer");
    if (!entry) return;
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN) continue;
    const Fd below = base::try_open_directory_beneath(directory.get(), name);
    // If it cannot be opened, archiving reports it.
    if (below) require_depth_below(part, below, layers::join_path(path, name), depth + 1);
  }
}

class PartArchiver {
 public:
  PartArchiver(ArchiveWriter& writer, const LayerPart& part)
      : writer_(writer), part_(part), linked_([&writer] { return writer.unnamed_file(); }) {}

  void run() {
    attempt("", [&] {
      if (!part_.base.empty()) attempt("", [&] { base_ = base::open_directory(part_.base); });
      const Fd top = base::open_file(part_.uppers.front(), kDirectoryFlags);
      directory(top, "", overlay_mark(top.get(), "trusted.overlay.opaque") == "y", 0);
      contents(top, "", 0);
    });
  }

 private:
  template <typename Work>
  void attempt(const std::string& path, const Work& work) {
    if (!part_.pass_over) return work();
    const uint64_t names_bytes = names_bytes_;
    const unsigned merging = merging_;
    try {
      work();
    } catch (const Error& error) {
      names_bytes_ = names_bytes;
      merging_ = merging;
      part_.pass_over(layers::join_path(part_.prefix, path), error);
      writer_.fill();
    }
  }

  uint32_t inside_id(uint32_t id, const std::string& path) {
    if (id < part_.disk_first_id || id - part_.disk_first_id >= layers::kIdsPerSandbox) {
      fail(part_, Code::corrupted, path,
           "has owner or group " + std::to_string(id) + ", which no sandbox uses");
    }
    return id - part_.disk_first_id;
  }

  ArchiveEntry entry_of(const struct stat& status, const std::string& path) {
    ArchiveEntry entry{layers::node_of(status, layers::join_path(part_.prefix, path))};
    entry.uid = inside_id(status.st_uid, path);
    entry.gid = inside_id(status.st_gid, path);
    return entry;
  }

  void put(const ArchiveEntry& entry) {
    writer_.begin(entry);
    if (part_.on_entry) part_.on_entry();
  }

  // A file with several names is archived once; its other names become hard links.
  bool put_link(const ArchiveEntry& entry, const struct stat& status) {
    if (status.st_nlink < 2) return false;
    auto first = linked_.first_path({status.st_dev, status.st_ino}, entry.path);
    if (!first) return false;
    ArchiveEntry link{entry};
    link.type = NodeType::hard_link;
    link.size = 0;
    link.attributes.clear();
    link.sparse = false;
    link.extents.clear();
    link.target = std::move(*first);
    put(link);
    return true;
  }

  void directory(const Fd& fd, const std::string& path, bool opaque, unsigned depth) {
    require_depth(part_, path, depth);
    struct stat status;
    base::check(fstat(fd.get(), &status), "inspect a directory of a layer");
    ArchiveEntry entry = entry_of(status, path);
    entry.opaque = opaque;
    entry.attributes = read_attributes(fd.get(), part_.disk_first_id);
    put(entry);
  }

  // The unmerged contents of one directory of this layer.
  void contents(const Fd& fd, const std::string& path, unsigned depth) {
    const bool marked = overlay_mark(fd.get(), "trusted.overlay.opaque") == "x";
    for_each_name(fd.get(), [&](const std::string& name) {
      node(fd.get(), name, layers::join_path(path, name), depth + 1, marked);
    });
  }

  // Visits names in order with bounded memory, shared with the parent directories in progress.
  template <typename Use>
  void for_each_name(int fd, const Use& use) {
    layers::SortedNames names;
    uint64_t counted = 0;
    for (;;) {
      names_bytes_ -= counted;
      const uint64_t left = kNamesBytes - std::min(names_bytes_, kNamesBytes);
      const auto name = names.next(fd, std::clamp(left / 3, kLeastPieceBytes, kMostPieceBytes));
      names_bytes_ += counted = names.bytes();
      if (!name) break;
      use(*name);
    }
    names_bytes_ -= counted;
  }

  void node(int parent, const std::string& name, const std::string& path, unsigned depth,
            bool marked_whiteouts) {
    attempt(path, [&] { put_node(parent, name, path, depth, marked_whiteouts); });
  }

  void put_node(int parent, const std::string& name, const std::string& path, unsigned depth,
                bool marked_whiteouts) {
    struct stat status;
    base::check(fstatat(parent, name.c_str(), &status, AT_SYMLINK_NOFOLLOW), "stat " + path);
    if (S_ISDIR(status.st_mode)) {
      const Fd fd = base::open_directory_beneath(parent, name);
      const std::string mark = overlay_mark(fd.get(), "trusted.overlay.opaque");
      if (!overlay_mark(fd.get(), "trusted.overlay.redirect").empty()) {
        directory(fd, path, true, depth);
        if (merging_ == 0) walk_.reset();  // its limits apply to one renamed directory
        merged(find_merged(path), path, depth);
      } else {
        directory(fd, path, mark == "y", depth);
        contents(fd, path, depth);
      }
    } else {
      other(parent, name, path, status, marked_whiteouts);
    }
  }

  void other(int parent, const std::string& name, const std::string& path,
             const struct stat& status, bool marked_whiteouts) {
    if (S_ISCHR(status.st_mode) && status.st_rdev == 0) return whiteout(path);
    if (S_ISREG(status.st_mode)) return file(parent, name, path, marked_whiteouts);
    if (S_ISLNK(status.st_mode)) return symlink(parent, name, path, status);
    if (layers::is_device(status))
      fail(part_, Code::corrupted, path, "is a device, which no sandbox can make");
    ArchiveEntry entry = entry_of(status, path);
    const Fd pin = base::open_beneath(parent, name, O_PATH);
    entry.attributes = read_attributes(pin.get(), part_.disk_first_id);
    if (!put_link(entry, status)) put(entry);
  }

  // Below an opaque directory a whiteout has nothing to hide.
  void whiteout(const std::string& path) {
    if (merging_ > 0) return;
    ArchiveEntry entry;
    entry.path = layers::join_path(part_.prefix, path);
    entry.type = NodeType::whiteout;
    entry.mode = 0;
    put(entry);
  }

  void symlink(int parent, const std::string& name, const std::string& path,
               const struct stat& status) {
    auto target = layers::try_read_link(parent, name);
    if (!target) base::throw_errno("read the link " + path);
    ArchiveEntry entry = entry_of(status, path);
    entry.target = *std::move(target);
    if (!put_link(entry, status)) put(entry);
  }

  void file(int parent, const std::string& name, const std::string& path, bool marked_whiteouts) {
    const Fd fd = base::open_regular_beneath(parent, name, O_RDONLY | O_NOATIME);
    if (marked_whiteouts && base::read_attribute(fd.get(), "trusted.overlay.whiteout")) {
      return whiteout(path);
    }
    struct stat status;
    base::check(fstat(fd.get(), &status), "stat " + path);
    ArchiveEntry entry = entry_of(status, path);
    entry.attributes = read_attributes(fd.get(), part_.disk_first_id);
    std::vector<Extent> extents = find_all_extents(fd.get(), status);
    entry.sparse = entry.size > 0 && (extents.size() != 1 || extents.front().bytes != entry.size);
    if (entry.sparse) entry.extents = extents;
    if (put_link(entry, status)) return;
    writer_.begin(entry);
    for (const Extent& extent : extents) writer_.data_from(fd.get(), extent, extent.offset);
    writer_.end();
    if (part_.on_entry) part_.on_entry();
  }

  static std::vector<Extent> find_all_extents(int fd, const struct stat& status) {
    const auto size = static_cast<uint64_t>(status.st_size);
    if (size == 0) return {};
    // Small, and with blocks for all bytes: most files, and this saves two system calls for each.
    const bool full = static_cast<uint64_t>(status.st_blocks) * 512 >= size;
    if (full && size <= kSmallBytes) return {{0, size}};
    std::vector<Extent> extents = find_extents(fd, size, 1);
    for (uint64_t least = 64 << 10; extents.size() > kMaxExtents; least *= 4) {
      extents = find_extents(fd, size, least);
    }
    return extents;
  }

  // --- renamed directories: their contents come from several places ---

  layers::LayerWalk& walk() {
    if (!walk_) {
      walk_.emplace(part_.uppers, [this](const std::string& path) {
        const Fd fd = open_base(path);
        return static_cast<bool>(fd);
      });
    }
    return *walk_;
  }

  Fd open_base(const std::string& path) {
    if (!base_) return {};
    if (path.empty()) return base_.duplicate();
    return base::try_open_directory_beneath(base_.get(), path);
  }

  Fd open_upper(const layers::UpperDirectory& where) {
    const Fd root = base::open_file(part_.uppers.at(where.layer), kDirectoryFlags);
    if (where.path.empty()) return root.duplicate();
    return base::open_directory_beneath(root.get(), where.path);
  }

  layers::MergedDirectory find_merged(const std::string& path) {
    layers::MergedDirectory here = walk().root();
    for (std::string_view rest = path; !rest.empty();) {
      auto entry = walk().open(here).entry(std::string(base::take_until(rest, '/')));
      if (!entry || entry->kind != layers::EntryKind::directory) {
        fail(part_, Code::conflict, path, "changed while it was being archived");
      }
      here = std::move(entry->directory);
    }
    return here;
  }

  void merged(const layers::MergedDirectory& here, const std::string& path, unsigned depth) {
    ++merging_;
    auto open = walk().open(here);
    bool incomplete = walk().take_incomplete();
    const std::vector<std::string>& names = open.names();
    const Fd base = here.base ? open_base(*here.base) : Fd();
    if (base) {
      for_each_name(base.get(), [&](const std::string& name) {
        if (std::binary_search(names.begin(), names.end(), name)) return;
        node(base.get(), name, layers::join_path(path, name), depth + 1, false);
      });
    }
    for (const std::string& name : names) {
      const std::string below = layers::join_path(path, name);
      attempt(below, [&] {
        const auto entry = open.entry(name);
        incomplete = walk().take_incomplete() || incomplete;
        put_merged_entry(entry, below, depth);
      });
      walk().take_incomplete();  // the directory below has reported it
    }
    if (incomplete) {
      fail(part_, Code::unsupported, path, "is a renamed directory with too many entries to merge");
    }
    --merging_;
  }

  void put_merged_entry(const std::optional<layers::MergedEntry>& entry, const std::string& path,
                        unsigned depth) {
    if (!entry || entry->kind == layers::EntryKind::absent) return;
    if (entry->kind != layers::EntryKind::directory) {
      const std::string& source = entry->source.path;
      const Fd parent = open_upper({entry->source.layer, parent_of(source)});
      node(parent.get(), source.substr(source.rfind('/') + 1), path, depth + 1, false);
      return;
    }
    const layers::MergedDirectory& below = entry->directory;
    const Fd top = below.uppers.empty() ? open_base(below.base.value_or(""))
                                        : open_upper(below.uppers.front());
    directory(top, path, false, depth + 1);
    merged(below, path, depth + 1);
  }

  ArchiveWriter& writer_;
  const LayerPart& part_;
  Fd base_;
  LinkTable linked_;
  uint64_t names_bytes_ = 0;
  std::optional<layers::LayerWalk> walk_;
  unsigned merging_ = 0;
};

}  // namespace

void require_archivable_depth(const LayerPart& part) {
  const Fd top = base::open_file(part.uppers.front(), kDirectoryFlags);
  require_depth_below(part, top, "", 0);
}

void archive_layer_part(ArchiveWriter& writer, const LayerPart& part) {
  PartArchiver(writer, part).run();
}

}  // namespace moorage::packs
