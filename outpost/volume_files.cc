#include "outpost/volume_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/digest.h"
#include "base/error.h"
#include "base/os/files.h"

namespace moorage::outpost {
namespace {

constexpr size_t kPieceBytes = 256 << 10;

// Neither a link is followed, nor a pipe waited for.
Fd open_regular(const std::string& path, uint64_t bytes) {
  Fd file = base::open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  struct stat status {};
  base::check(fstat(file.get(), &status), "inspect " + path);
  if (!S_ISREG(status.st_mode)) throw Error(Code::corrupted, path + " is not a regular file");
  if (static_cast<uint64_t>(status.st_size) != bytes) {
    throw Error(Code::corrupted, path + " has " + std::to_string(status.st_size) +
                                     " bytes instead of " + std::to_string(bytes));
  }
  return file;
}

void copy_all(const Fd& from, const Fd& to) {
  for (uint64_t offset = 0;;) {
    const std::string piece = base::read_at(from.get(), kPieceBytes, offset);
    if (piece.empty()) return;
    base::write_all(to.get(), piece);
    offset += piece.size();
  }
}

}  // namespace

Fd take_file(const VolumeFile& wanted, const std::string& directory) {
  const Fd file = open_regular(wanted.path, wanted.bytes);
  Fd copy = base::open_file(directory, O_TMPFILE | O_RDWR, 0600);
  base::Sha256 digest;
  for (uint64_t offset = 0; offset < wanted.bytes;) {
    const size_t most = std::min<uint64_t>(kPieceBytes, wanted.bytes - offset);
    const std::string piece = base::read_at(file.get(), most, offset);
    if (piece.empty()) throw Error(Code::corrupted, wanted.path + " was cut while it was read");
    digest.add(piece);
    base::write_all(copy.get(), piece);
    offset += piece.size();
  }
  if (base::to_hex(digest.raw()) != wanted.digest) {
    unlink(wanted.path.c_str());
    throw Error(Code::corrupted, wanted.path + " has other contents than were written there");
  }
  base::check(lseek(copy.get(), 0, SEEK_SET), "read a copy");
  return copy;
}

void keep_file(const Fd& copy, const std::string& path) {
  struct stat status {};
  base::check(fstat(copy.get(), &status), "inspect a copy");
  if (status.st_size == 0)
    throw Error(Code::resource_exhausted, "no room here for a copy of the pack");
  Fd file = base::open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  try {
    copy_all(copy, file);
    // Object storage takes it now, or refuses.
    base::check(close(file.release()), "write " + path);
  } catch (const Error&) {
    unlink(path.c_str());
    throw;
  }
}

}  // namespace moorage::outpost
