#include "workspace/layer_archiver.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/open_beneath.h"
#include "workspace/archive_attributes.h"
#include "workspace/layer_walk.h"

namespace moorage::workspace {
namespace {

using base::Code;
using base::Error;
using base::Fd;

constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NOATIME;
constexpr size_t kPieceBytes = 256 << 10;
constexpr size_t kMaxExtents = 50'000;  // more, and small holes are filled until it is fewer
constexpr uint64_t kSmallBytes = 64 << 10;
constexpr uint32_t kIds = 65536;

std::string join(const std::string& directory, const std::string& name) {
  if (directory.empty() || name.empty()) return directory + name;
  return directory + "/" + name;
}

std::string proc_path(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

std::string overlay_mark(int fd, const char* name) {
  char value[4096];
  const ssize_t size = fgetxattr(fd, name, value, sizeof value);
  return size > 0 ? std::string(value, static_cast<size_t>(size)) : std::string();
}

// Where a file has data. Holes smaller than `least_hole` count as data.
std::vector<Extent> find_extents(int fd, uint64_t size, uint64_t least_hole) {
  std::vector<Extent> extents;
  for (uint64_t at = 0; at < size;) {
    const off_t data = lseek(fd, static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 && errno == ENXIO) break;  // a hole up to the end
    const off_t hole = lseek(fd, base::check(data, "look for data"), SEEK_HOLE);
    const auto begin = static_cast<uint64_t>(data);
    const auto end = std::min(size, static_cast<uint64_t>(base::check(hole, "look for a hole")));
    if (begin >= size) break;
    if (!extents.empty() && begin - (extents.back().offset + extents.back().bytes) < least_hole) {
      extents.back().bytes = end - extents.back().offset;
    } else {
      extents.push_back({begin, end - begin});
    }
    at = end;
  }
  return extents;
}

class PartArchiver {
 public:
  PartArchiver(ArchiveWriter& writer, const LayerPart& part) : writer_(writer), part_(part) {
    if (!part.base.empty()) base_ = base::open_directory(part.base);
  }

  void run() {
    const Fd top = base::open_file(part_.uppers.front(), kDirectoryFlags);
    directory(top, "", overlay_mark(top.get(), "trusted.overlay.opaque") == "y", 0);
    contents(top, "", 0);
  }

 private:
  using Inode = std::pair<dev_t, ino_t>;

  [[noreturn]] void fail(Code code, const std::string& path, const std::string& why) {
    throw Error(code, base::escape_for_message(join(part_.prefix, path)) + " " + why);
  }

  uint32_t inside_id(uint32_t id, const std::string& path) {
    if (id < part_.disk_first_id || id - part_.disk_first_id >= kIds) {
      fail(Code::corrupted, path, "belongs to " + std::to_string(id) + ", which no sandbox is");
    }
    return id - part_.disk_first_id;
  }

  ArchiveEntry entry_of(const struct stat& status, const std::string& path, EntryType type) {
    ArchiveEntry entry;
    entry.path = join(part_.prefix, path);
    entry.type = type;
    entry.mode = status.st_mode & 07777;
    entry.uid = inside_id(status.st_uid, path);
    entry.gid = inside_id(status.st_gid, path);
    entry.mtime_s = status.st_mtim.tv_sec;
    entry.mtime_ns = static_cast<uint32_t>(status.st_mtim.tv_nsec);
    return entry;
  }

  void put(const ArchiveEntry& entry) {
    writer_.begin(entry);
    if (part_.on_entry) part_.on_entry();
  }

  void directory(const Fd& fd, const std::string& path, bool opaque, unsigned depth) {
    if (depth > kMaxArchiveDepth) {
      fail(Code::unsupported, path.substr(0, 200) + "...",
           "is nested deeper than " + std::to_string(kMaxArchiveDepth) + " directories");
    }
    struct stat status;
    base::check(fstat(fd.get(), &status), "look at a directory of a layer");
    ArchiveEntry entry = entry_of(status, path, EntryType::directory);
    entry.opaque = opaque;
    entry.attributes = read_attributes(proc_path(fd.get()), part_.disk_first_id);
    put(entry);
  }

  // Of one directory of this layer, as they are.
  void contents(const Fd& fd, const std::string& path, unsigned depth) {
    const bool marked = overlay_mark(fd.get(), "trusted.overlay.opaque") == "x";
    for (const std::string& name : base::list_directory(fd.get())) {
      node(fd.get(), name, join(path, name), depth + 1, marked);
    }
  }

  void node(int parent, const std::string& name, const std::string& path, unsigned depth,
            bool marked_whiteouts) {
    struct stat status;
    base::check(fstatat(parent, name.c_str(), &status, AT_SYMLINK_NOFOLLOW), "look at " + path);
    if (S_ISDIR(status.st_mode)) {
      const Fd fd = base::open_directory_beneath(parent, name);
      const std::string mark = overlay_mark(fd.get(), "trusted.overlay.opaque");
      if (!overlay_mark(fd.get(), "trusted.overlay.redirect").empty()) {
        directory(fd, path, true, depth);
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
    const Inode inode{status.st_dev, status.st_ino};
    if (status.st_nlink > 1) {
      const auto [first, is_new] = linked_.emplace(inode, join(part_.prefix, path));
      if (!is_new) {
        ArchiveEntry entry = entry_of(status, path, EntryType::hard_link);
        entry.target = first->second;
        return put(entry);
      }
    }
    if (S_ISREG(status.st_mode)) return file(parent, name, path, marked_whiteouts);
    if (S_ISLNK(status.st_mode)) return symlink(parent, name, path, status);
    if (!S_ISFIFO(status.st_mode) && !S_ISSOCK(status.st_mode)) {
      fail(Code::corrupted, path, "is a device, which no sandbox can make");
    }
    ArchiveEntry entry =
        entry_of(status, path, S_ISFIFO(status.st_mode) ? EntryType::fifo : EntryType::socket);
    const Fd pin = base::open_beneath(parent, name, O_PATH);
    entry.attributes = read_attributes(proc_path(pin.get()), part_.disk_first_id);
    put(entry);
  }

  // Where all is opaque there is nothing to hide.
  void whiteout(const std::string& path) {
    if (merging_ > 0) return;
    ArchiveEntry entry;
    entry.path = join(part_.prefix, path);
    entry.type = EntryType::whiteout;
    entry.mode = 0;
    put(entry);
  }

  void symlink(int parent, const std::string& name, const std::string& path,
               const struct stat& status) {
    std::string target(4096, '\0');
    const ssize_t size = readlinkat(parent, name.c_str(), target.data(), target.size());
    target.resize(static_cast<size_t>(base::check(size, "read the link " + path)));
    ArchiveEntry entry = entry_of(status, path, EntryType::symlink);
    entry.target = std::move(target);
    put(entry);
  }

  void file(int parent, const std::string& name, const std::string& path, bool marked_whiteouts) {
    const Fd fd = base::open_regular_beneath(parent, name, O_RDONLY | O_NOATIME);
    if (marked_whiteouts && fgetxattr(fd.get(), "trusted.overlay.whiteout", nullptr, 0) >= 0) {
      return whiteout(path);
    }
    struct stat status;
    base::check(fstat(fd.get(), &status), "look at " + path);
    ArchiveEntry entry = entry_of(status, path, EntryType::file);
    entry.size = static_cast<uint64_t>(status.st_size);
    entry.attributes = read_attributes(proc_path(fd.get()), part_.disk_first_id);
    std::vector<Extent> extents = find_all_extents(fd.get(), status);
    entry.sparse = entry.size > 0 && (extents.size() != 1 || extents.front().bytes != entry.size);
    if (entry.sparse) entry.extents = extents;
    writer_.begin(entry);
    for (const Extent& extent : extents) content(fd.get(), extent);
    writer_.end();
    if (part_.on_entry) part_.on_entry();
  }

  static std::vector<Extent> find_all_extents(int fd, const struct stat& status) {
    const auto size = static_cast<uint64_t>(status.st_size);
    if (size == 0) return {};
    // Small, and as many blocks as bytes: most files, and two system calls less for each.
    const bool full = static_cast<uint64_t>(status.st_blocks) * 512 >= size;
    if (full && size <= kSmallBytes) return {{0, size}};
    std::vector<Extent> extents = find_extents(fd, size, 1);
    for (uint64_t least = 64 << 10; extents.size() > kMaxExtents; least *= 4) {
      extents = find_extents(fd, size, least);
    }
    return extents;
  }

  void content(int fd, const Extent& extent) {
    uint64_t offset = extent.offset;
    const uint64_t end = extent.offset + extent.bytes;
    while (offset < end) {
      const std::string piece =
          base::read_at(fd, std::min<uint64_t>(kPieceBytes, end - offset), offset);
      if (piece.empty()) return;  // the writer says that it became shorter
      writer_.data(offset, piece);
      offset += piece.size();
    }
  }

  // --- directories that were renamed: their contents come from several places ---

  LayerWalk& walk() {
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

  Fd open_upper(const UpperDirectory& where) {
    const Fd root = base::open_file(part_.uppers.at(where.layer), kDirectoryFlags);
    if (where.path.empty()) return root.duplicate();
    return base::open_directory_beneath(root.get(), where.path);
  }

  MergedDirectory find_merged(const std::string& path) {
    MergedDirectory here = walk().root();
    for (size_t begin = 0; begin < path.size();) {
      const size_t end = std::min(path.find('/', begin), path.size());
      auto entry = walk().open(here).entry(path.substr(begin, end - begin));
      if (!entry || entry->kind != EntryKind::directory) {
        fail(Code::conflict, path, "changed while it was being archived");
      }
      here = std::move(entry->directory);
      begin = end + 1;
    }
    return here;
  }

  void merged(const MergedDirectory& here, const std::string& path, unsigned depth) {
    ++merging_;
    auto open = walk().open(here);
    std::set<std::string> names(open.names().begin(), open.names().end());
    const Fd base = here.base ? open_base(*here.base) : Fd();
    if (base) {
      for (std::string& name : base::list_directory(base.get())) {
        if (names.contains(name)) continue;
        node(base.get(), name, join(path, name), depth + 1, false);
      }
    }
    for (const std::string& name : names) merged_entry(open.entry(name), join(path, name), depth);
    if (walk().truncated() || walk().changed_meanwhile()) {
      fail(Code::unsupported, path, "is renamed and has more in it than can be merged");
    }
    --merging_;
  }

  void merged_entry(const std::optional<MergedEntry>& entry, const std::string& path,
                    unsigned depth) {
    if (!entry || entry->kind == EntryKind::absent) return;
    if (entry->kind != EntryKind::directory) {
      const std::string& source = entry->source.path;
      const Fd parent = open_upper({entry->source.layer, parent_of(source)});
      node(parent.get(), source.substr(source.rfind('/') + 1), path, depth + 1, false);
      return;
    }
    const MergedDirectory& below = entry->directory;
    const Fd top = below.uppers.empty() ? open_base(below.base.value_or(""))
                                        : open_upper(below.uppers.front());
    directory(top, path, false, depth + 1);
    merged(below, path, depth + 1);
  }

  ArchiveWriter& writer_;
  const LayerPart& part_;
  Fd base_;
  std::map<Inode, std::string> linked_;
  std::optional<LayerWalk> walk_;
  unsigned merging_ = 0;
};

}  // namespace

void archive_layer_part(ArchiveWriter& writer, const LayerPart& part) {
  PartArchiver(writer, part).run();
}

}  // namespace moorage::workspace
