#include "packs/tar_to_layer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "base/os/xattr.h"
#include "layers/ids.h"
#include "packs/attributes.h"

namespace moorage::packs {
namespace {

constexpr size_t kMaxLookupBytes = 3000;  // of one openat2; longer paths take several

std::string shown(const ArchiveEntry& entry) { return base::escape_for_message(entry.path); }

// EEXIST means a duplicate entry.
void check_made(int answer, const ArchiveEntry& entry) {
  if (answer >= 0) return;
  if (errno == EEXIST) refuse_entry(entry, "occurs twice");
  base::throw_errno("make " + shown(entry));
}

}  // namespace

LayerRestorer::LayerRestorer(const std::string& upper, std::string prefix, uint32_t disk_first_id)
    : prefix_(std::move(prefix)),
      disk_first_id_(disk_first_id),
      root_(base::open_directory(upper)),
      check_(prefix_, disk_first_id) {}

void LayerRestorer::take(const ArchiveEntry& entry, ArchiveReader& reader) {
  const size_t around = check_.place(entry);
  while (levels_.size() > around) leave();
  if (levels_.empty()) return levels_.push_back({root_.duplicate(), entry});
  const int parent = levels_.back().fd.get();
  const std::string name = entry.path.substr(entry.path.rfind('/') + 1);
  if (entry.type == NodeType::directory) return make_directory(entry, parent, name);
  if (entry.type == NodeType::file) return make_file(entry, parent, name, reader);
  if (entry.type == NodeType::hard_link) return make_link(entry, parent, name);
  make_other(entry, parent, name);
}

void LayerRestorer::leave() {
  const Level level = std::move(levels_.back());
  levels_.pop_back();
  if (level.entry.opaque) base::write_attribute(level.fd.get(), "trusted.overlay.opaque", "y");
  complete(level.entry, level.fd.get());
}

void LayerRestorer::finish() {
  while (!levels_.empty()) leave();
}

void LayerRestorer::complete(const ArchiveEntry& entry, int fd) const {
  const auto attributes = [&] {
    write_attributes(fd, entry.attributes, disk_first_id_, "entry " + shown(entry));
  };
  layers::complete_node(fd, entry, {shown(entry), attributes, disk_first_id_});
}

// 0700 for now, whatever its final mode: nobody else enters it, and nothing is inherited from it.
void LayerRestorer::make_directory(const ArchiveEntry& entry, int parent, const std::string& name) {
  check_made(mkdirat(parent, name.c_str(), 0700), entry);
  levels_.push_back({base::open_directory_beneath(parent, name), entry});
}

void LayerRestorer::make_file(const ArchiveEntry& entry, int parent, const std::string& name,
                              ArchiveReader& reader) {
  const Fd file = base::try_open_beneath(parent, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
  check_made(file.get(), entry);
  LayerCheck::Content content(entry);
  for (ArchiveReader::Piece piece; reader.read(piece);) {
    const uint64_t position = content.end();
    content.add(piece);
    if (piece.offset != position) {
      base::check(lseek(file.get(), static_cast<off_t>(piece.offset), SEEK_SET),
                  "write " + shown(entry));
    }
    base::write_all(file.get(), piece.bytes);
  }
  if (content.end() != entry.size) {
    if (ftruncate(file.get(), static_cast<off_t>(entry.size)) < 0) {
      if (errno == EFBIG || errno == EINVAL)
        refuse_entry(entry, "is larger than this file system allows");
      base::throw_errno("set the size of " + shown(entry));
    }
  }
  complete(entry, file.get());
}

void LayerRestorer::make_other(const ArchiveEntry& entry, int parent, const std::string& name) {
  if (entry.type == NodeType::whiteout) {
    check_made(mknodat(parent, name.c_str(), S_IFCHR, 0), entry);
    // With an owner outside the mount's ids it could never be removed (layers/overlay.h).
    const uint32_t mounter = disk_first_id_ + layers::kIdsPerSandbox;
    base::check(fchownat(parent, name.c_str(), mounter, mounter, AT_SYMLINK_NOFOLLOW),
                "change the owner of " + shown(entry));
    return;
  }
  const Fd made = layers::make_node(parent, name, entry);
  check_made(made.get(), entry);
  complete(entry, made.get());
}

// Finds an entry of this part by its path from the root, in several steps: one takes PATH_MAX.
Fd LayerRestorer::find_made(const std::string& path, const ArchiveEntry& entry) {
  Fd at = root_.duplicate();
  std::string rest = path;
  while (!rest.empty()) {
    const size_t end =
        rest.size() <= kMaxLookupBytes ? rest.size() : rest.rfind('/', kMaxLookupBytes);
    const std::string step = rest.substr(0, end);
    at = base::try_open_beneath(at.get(), step, O_PATH);
    if (!at) refuse_entry(entry, "links to a path that does not precede it in the same layer");
    rest.erase(0, end + (end < rest.size() ? 1 : 0));
  }
  return at;
}

void LayerRestorer::make_link(const ArchiveEntry& entry, int parent, const std::string& name) {
  const Fd target = find_made(entry.target.substr(prefix_.size() + 1), entry);
  struct stat status;
  base::check(fstat(target.get(), &status), "stat " + shown(entry));
  if (S_ISDIR(status.st_mode) || S_ISCHR(status.st_mode)) {
    refuse_entry(entry, "is a hard link to an entry that cannot have hard links");
  }
  check_made(linkat(target.get(), "", parent, name.c_str(), AT_EMPTY_PATH), entry);
}

}  // namespace moorage::packs
