#include "layers/node_copy.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/os/fd.h"
#include "base/os/open_beneath.h"
#include "base/os/xattr.h"
#include "layers/node.h"

namespace moorage::layers {
namespace {

constexpr size_t kPieceBytes = 1 << 20;

std::string shown(const std::string& name) { return base::escape_for_message(name); }

// One by one: all attributes of a file may take hundreds of megabytes.
void copy_attributes(int from, int to) {
  const std::vector<std::string> stale = base::attribute_names(to);
  std::set<std::string> kept;
  for (const std::string& name : base::attribute_names(from)) {
    const auto value = base::read_attribute(from, name);
    if (!value) continue;  // removed since the listing
    base::write_attribute(to, name, *value);
    kept.insert(name);
  }
  for (const std::string& name : stale) {
    if (!kept.contains(name)) base::remove_attribute(to, name);
  }
}

// Copies `length` bytes from `at`, or up to the end; returns the end position. copy_file_range
// would share contents where FICLONE does, and refuses to copy between file systems.
off_t copy_piece(int from, int to, off_t at, off_t length) {
  base::check(lseek(to, at, SEEK_SET), "write a copied file");
  while (length > 0) {
    const ssize_t copied =
        sendfile(to, from, &at, std::min<size_t>(static_cast<size_t>(length), kPieceBytes));
    base::check(copied, "copy a file");
    if (copied == 0) break;  // truncated meanwhile
    length -= copied;
  }
  return at;
}

// Returns the bytes of data. If the file changes meanwhile, the copy's contents are undefined.
uint64_t copy_contents(int from, int to, off_t size, off_t copied_bytes) {
  if (size == 0) return 0;
  if (size > copied_bytes && ioctl(to, FICLONE, from) == 0) return static_cast<uint64_t>(size);
  uint64_t bytes = 0;
  off_t end_of_copy = 0;
  for (off_t at = 0;
       const auto data = next_data(from, static_cast<uint64_t>(at), static_cast<uint64_t>(size));) {
    end_of_copy =
        copy_piece(from, to, static_cast<off_t>(data->offset), static_cast<off_t>(data->bytes));
    bytes += data->bytes;
    at = static_cast<off_t>(data->offset + data->bytes);
  }
  // Only if needed: on XFS, ftruncate first flushes unwritten data to disk.
  if (end_of_copy != size) base::check(ftruncate(to, size), "set the size of a copied file");
  return bytes;
}

// The file is gone, or has become another kind of file.
bool changed_kind() { return errno == ENOENT || errno == ELOOP || errno == ENXIO; }

std::optional<MadeNode> copy_file(const NodeName& name) {
  const Fd from = base::try_open_beneath(name.from, name.name, O_RDONLY | O_NOATIME);
  if (!from && changed_kind()) return std::nullopt;
  base::check(from.get(), "open " + shown(name.name));
  MadeNode made;
  base::check(fstat(from.get(), &made.status), "stat " + shown(name.name));
  if (!S_ISREG(made.status.st_mode)) return std::nullopt;
  const Fd to = base::try_open_beneath(name.to, name.new_name, O_WRONLY | O_CREAT | O_EXCL, 0600);
  base::check(to.get(), "make a copy of " + shown(name.name));
  made.bytes = copy_contents(from.get(), to.get(), made.status.st_size, name.copied_bytes);
  complete_copy(from.get(), to.get(), made.status);
  return made;
}

}  // namespace

void complete_copy(int from, int to, const struct stat& status) {
  Node node = node_of(status);
  node.atime = status.st_atim;
  complete_node(to, node, {"a copy", [from, to] { copy_attributes(from, to); }});
}

std::optional<MadeNode> copy_node(const NodeName& name) {
  const Fd from = base::try_open_beneath(name.from, name.name, O_PATH);
  if (!from && changed_kind()) return std::nullopt;
  base::check(from.get(), "open " + shown(name.name));
  MadeNode made;
  base::check(fstat(from.get(), &made.status), "stat " + shown(name.name));
  Node node = node_of(made.status);
  if (node.type == NodeType::file) return copy_file(name);
  if (node.type == NodeType::directory) return std::nullopt;
  if (node.type == NodeType::symlink) node.target = read_link(from.get());
  const Fd to = make_node(name.to, name.new_name, node);
  base::check(to.get(), "make a copy of " + shown(name.name));
  complete_copy(from.get(), to.get(), made.status);
  return made;
}

}  // namespace moorage::layers
