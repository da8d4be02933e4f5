#include "layers/tree_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/crash_point.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/os/file_time.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "base/parts.h"
#include "layers/node.h"

namespace moorage::layers {
namespace {

MOORAGE_CRASH_POINT(after_sync, "file.after_sync");
MOORAGE_CRASH_POINT(after_rename, "file.after_rename");

[[noreturn]] void throw_file_error(const std::string& what, int error_number) {
  switch (error_number) {
    case EEXIST:
      throw Error(Code::already_exists, "cannot " + what + ": it already exists");
    case ENOTEMPTY:
      throw Error(Code::conflict, "cannot " + what + ": the directory is not empty",
                  "remove it recursively to remove its contents, too");
    case EISDIR:
    case EBUSY:
      throw Error(Code::conflict, "cannot " + what + ": a directory or a mount is in the way");
    case EINVAL:
    case ENOTDIR:
    case ENAMETOOLONG:
    case ELOOP:
    case EXDEV:
      try {
        base::throw_errno(what, error_number);
      } catch (const Error& error) {
        throw Error(Code::invalid_argument, error.message());
      }
    default:
      base::throw_errno(what, error_number);
  }
}

void check_file(long result, const std::string& what) {
  if (result < 0) throw_file_error(what, errno);
}

// Takes the rights and ids of the agent's user for calls that create files, in this thread only
// (raw calls say so; the C library's would also change only this thread). Leaving user 0 drops the
// capabilities over files, returning restores them (capabilities(7)).
class AgentRights {
 public:
  explicit AgentRights(uint32_t owner) {
    syscall(SYS_setfsgid, owner);
    syscall(SYS_setfsuid, owner);
    // Neither call reports a refusal; a second call returns the current id.
    if (syscall(SYS_setfsuid, -1) != static_cast<long>(owner) ||
        syscall(SYS_setfsgid, -1) != static_cast<long>(owner)) {
      give_back();
      throw Error(Code::internal, "cannot act as user " + std::to_string(owner));
    }
  }
  ~AgentRights() { give_back(); }
  AgentRights(AgentRights&&) = delete;

 private:
  static void give_back() {
    syscall(SYS_setfsuid, geteuid());
    syscall(SYS_setfsgid, getegid());
    assert(syscall(SYS_setfsuid, -1) == static_cast<long>(geteuid()));
  }
};

uint64_t mount_of(int fd) {
  struct statx status;
  base::check(statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &status), "inspect a mount");
  return status.stx_mnt_id;
}

// Refuses mounts that a sandbox's root made below its tree, such as a /proc: they are not part of
// the workspace.
Fd open_place(const InsidePlace& place, int flags) {
  Fd fd = base::open_in_root(place.root, place.path, flags);
  if (mount_of(fd.get()) != mount_of(place.root)) {
    throw Error(Code::invalid_argument, place.path + " is on another mount");
  }
  return fd;
}

using Roots = std::vector<InsideRoot>;

Fd open_inside(const Roots& roots, const std::string& path, int flags) {
  return open_place(find_inside(roots, path, (flags & O_NOFOLLOW) == 0), flags);
}

// A name in an open directory, for the calls that change something.
struct Place {
  Fd directory;
  std::string name;
};

std::pair<std::string, std::string> split(const std::string& path) {
  size_t end = path.find_last_not_of('/');
  std::string trimmed = end == std::string::npos ? "" : path.substr(0, end + 1);
  size_t slash = trimmed.rfind('/');
  if (slash == std::string::npos) return {"", trimmed};
  return {trimmed.substr(0, slash + 1), trimmed.substr(slash + 1)};
}

[[noreturn]] void throw_nameless(const std::string& path) {
  throw Error(Code::invalid_argument, "'" + path + "' does not end in a name",
              "the root of the tree itself cannot be created, moved or removed");
}

Place place_of(const InsidePlace& found, const std::string& path) {
  if (found.path.empty()) throw_nameless(path);
  auto [parent, name] = split(found.path);
  return {open_place({found.root, parent}, O_RDONLY | O_DIRECTORY), name};
}

// Finds the name itself, of any type.
InsidePlace find_name(const Roots& roots, const std::string& path) {
  if (path.find('\0') != std::string::npos) {
    throw Error(Code::invalid_argument, "a path must not contain a NUL byte");
  }
  const std::string name = split(path).second;
  if (name.empty() || name == "." || name == "..") throw_nameless(path);
  return find_inside(roots, path, false);
}

Place place_of(const Roots& roots, const std::string& path) {
  return place_of(find_name(roots, path), path);
}

void sync_directory(const Fd& directory, const std::string& what) {
  base::sync_file(directory.get(), "the directory of " + what);
}

FileEntry entry_of(std::string name, const struct stat& status) {
  FileEntry entry;
  entry.name = std::move(name);
  entry.type = S_ISREG(status.st_mode)   ? FileType::file
               : S_ISDIR(status.st_mode) ? FileType::directory
               : S_ISLNK(status.st_mode) ? FileType::symlink
                                         : FileType::other;
  entry.size_bytes = static_cast<uint64_t>(status.st_size);
  entry.mode = status.st_mode & 07777;
  entry.modified_ns = base::file_time_ns(status.st_mtim);
  return entry;
}

std::string unguessable_name() { return ".moorage-" + base::random_hex(16); }

// The name at which a write to the path ends, after following links. A link that changes meanwhile
// leads elsewhere inside, never outside.
struct WriteTarget {
  Place place;
  std::string parent;  // of the name, as a path inside, with a slash at the end
  std::optional<mode_t> existing_mode;
};

WriteTarget write_target(const Roots& roots, const std::string& path) {
  find_name(roots, path);  // refuses a path without a name
  const InsidePlace found = find_inside(roots, path, true);
  Place place = place_of(found, path);
  const std::string parent = inside_path(roots, {found.root, split(found.path).first});
  struct stat status;
  if (fstatat(place.directory.get(), place.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) < 0) {
    if (errno != ENOENT) throw_file_error("check " + path, errno);
    return {std::move(place), parent, std::nullopt};
  }
  if (S_ISREG(status.st_mode)) return {std::move(place), parent, status.st_mode & 0777};
  if (S_ISDIR(status.st_mode)) throw Error(Code::conflict, path + " is a directory");
  throw Error(Code::invalid_argument, path + " is not a regular file");
}

bool directory_exists(const InsidePlace& place) {
  try {
    open_place(place, O_PATH | O_DIRECTORY);
    return true;
  } catch (const Error& error) {
    if (error.code() == Code::not_found) return false;
    throw;
  }
}

}  // namespace

FileEntry TreeFiles::stat(const std::string& path) const {
  Fd fd = open_inside(roots_, path, O_PATH | O_NOFOLLOW);
  struct stat status;
  base::check(fstat(fd.get(), &status), "check " + path);
  FileEntry entry = entry_of(split(path).second, status);
  if (entry.type == FileType::symlink) entry.link_target = read_link(fd.get());
  return entry;
}

Listing TreeFiles::list(const std::string& path, size_t max_entries) const {
  Fd directory = open_inside(roots_, path, O_RDONLY | O_DIRECTORY);
  std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(directory.get()), closedir);
  if (!stream) base::throw_errno("list " + path);
  int fd = directory.release();
  Listing listing;
  size_t text_bytes = 0;
  while (dirent* item = readdir(stream.get())) {
    std::string name = item->d_name;
    if (name == "." || name == "..") continue;
    if (listing.entries.size() == max_entries || text_bytes > kMaxListingBytes) {
      listing.truncated = true;
      break;
    }
    struct stat status;
    if (fstatat(fd, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) < 0) continue;  // gone meanwhile
    FileEntry entry = entry_of(name, status);
    if (entry.type == FileType::symlink) entry.link_target = try_read_link(fd, name).value_or("");
    text_bytes += entry.name.size() + entry.link_target.size();
    listing.entries.push_back(std::move(entry));
  }
  std::sort(listing.entries.begin(), listing.entries.end(),
            [](const FileEntry& a, const FileEntry& b) { return a.name < b.name; });
  return listing;
}

Fd TreeFiles::open_for_reading(const std::string& path, uint64_t* size_bytes) const {
  Fd fd = open_inside(roots_, path, O_RDONLY);
  struct stat status;
  base::check(fstat(fd.get(), &status), "check " + path);
  if (!S_ISREG(status.st_mode)) {
    throw Error(S_ISDIR(status.st_mode) ? Code::conflict : Code::invalid_argument,
                path + " is not a regular file");
  }
  *size_bytes = static_cast<uint64_t>(status.st_size);
  return fd;
}

std::string hash_of_file(int fd, const std::string& name) {
  constexpr size_t kPiece = 256 << 10;
  base::Sha256 hash;
  for (uint64_t offset = 0;;) {
    const std::string piece = base::read_at(fd, kPiece, offset);
    hash.add(piece);
    offset += piece.size();
    if (offset > kMaxHashBytes) {
      throw Error(Code::invalid_argument, name + " is larger than 1 GiB: too large to compare",
                  "change it without If-Match, under a lease");
    }
    if (piece.size() < kPiece) return base::to_hex(hash.raw());
  }
}

std::optional<std::string> TreeFiles::content_hash(const std::string& path) const {
  uint64_t size = 0;
  Fd file;
  try {
    file = open_for_reading(path, &size);
  } catch (const Error& error) {
    if (error.code() == Code::not_found) return std::nullopt;
    throw;
  }
  return hash_of_file(file.get(), path);
}

TreeFiles::Writer::~Writer() {
  if (file_) unlinkat(directory_.get(), temporary_.c_str(), 0);
}

void TreeFiles::Writer::set_mode(uint32_t bits) {
  base::check(fchmod(file_.get(), bits), "set the mode of " + name_);
}

void TreeFiles::Writer::write(std::string_view bytes) {
  synced_ = false;
  content_.write(bytes);
}

void TreeFiles::Writer::set_modified(int64_t since_1970_ns) {
  content_.finish();  // changes the time
  const auto times = base::modified_at(since_1970_ns);
  base::check(futimens(file_.get(), times.data()), "set the time of " + name_);
}

void TreeFiles::Writer::sync() {
  content_.finish();
  base::sync_file(file_.get(), name_);
  synced_ = true;
}

void TreeFiles::Writer::commit() {
  if (!synced_) sync();
  after_sync.pass();
  check_file(renameat(directory_.get(), temporary_.c_str(), directory_.get(), name_.c_str()),
             "write " + name_);
  after_rename.pass();
  file_.reset();  // nothing to revert any more
  sync_directory(directory_, name_);
}

// Overlay has O_TMPFILE only since Linux 6.3, so the file needs a name at once.
TreeFiles::Writer TreeFiles::begin_write(const std::string& path,
                                         std::optional<uint32_t> mode) const {
  WriteTarget target = write_target(roots_, path);
  const mode_t bits = mode ? *mode & 0777 : target.existing_mode.value_or(0644);
  const std::string temporary = unguessable_name();
  UploadNote note(notes_, target.parent, temporary);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL;
  Fd file;
  {
    AgentRights rights(owner_);
    file = base::try_open_beneath(target.place.directory.get(), temporary, kFlags, 0600);
  }
  check_file(file.get(), "write " + path);
  Writer writer(std::move(note), std::move(target.place.directory), target.place.name, temporary,
                std::move(file));
  writer.set_mode(bits);
  return writer;
}

void TreeFiles::make_directory(const std::string& path) const {
  const InsidePlace target = find_inside(roots_, path, true);
  InsidePlace made{target.root, {}};
  Fd parent = open_place(made, O_RDONLY | O_DIRECTORY);
  for (std::string_view rest = target.path; !rest.empty();) {
    const std::string name(base::take_until(rest, '/'));
    made.path += "/" + name;
    if (!directory_exists(made)) make_one_directory(parent.get(), name, path);
    parent = open_place(made, O_RDONLY | O_DIRECTORY);
  }
}

void TreeFiles::make_one_directory(int parent, const std::string& name,
                                   const std::string& path) const {
  int result = 0;
  {
    AgentRights rights(owner_);
    result = mkdirat(parent, name.c_str(), 0755);
    if (result == 0) {  // regardless of the daemon's umask
      const Fd made = base::try_open_directory_beneath(parent, name);
      if (made) result = fchmod(made.get(), 0755);
    }
  }
  if (result < 0 && errno != EEXIST) throw_file_error("create the directory " + path, errno);
  base::sync_file(parent, "the parent of " + path);
}

void TreeFiles::set_directory(const std::string& path, const DirectoryState& wanted) const {
  if (!wanted.mode && !wanted.modified_ns) return;
  const Fd directory = open_inside(roots_, path, O_RDONLY | O_DIRECTORY);
  const AgentRights rights(owner_);
  if (wanted.mode) check_file(fchmod(directory.get(), *wanted.mode), "set the mode of " + path);
  if (!wanted.modified_ns) return;
  const auto times = base::modified_at(*wanted.modified_ns);
  check_file(futimens(directory.get(), times.data()), "set the time of " + path);
}

void TreeFiles::make_symlink(const std::string& target, const std::string& path,
                             std::optional<int64_t> modified_ns) const {
  if (target.find('\0') != std::string::npos) {
    throw Error(Code::invalid_argument, "a link must not contain a NUL byte");
  }
  Place place = place_of(roots_, path);
  int result;
  {
    AgentRights rights(owner_);
    result = symlinkat(target.c_str(), place.directory.get(), place.name.c_str());
  }
  check_file(result, "create the link " + path);
  if (modified_ns) {
    const auto times = base::modified_at(*modified_ns);
    check_file(
        utimensat(place.directory.get(), place.name.c_str(), times.data(), AT_SYMLINK_NOFOLLOW),
        "set the time of " + path);
  }
  sync_directory(place.directory, path);
}

void TreeFiles::move(const std::string& from, const std::string& to) const {
  const InsidePlace source_place = find_name(roots_, from);
  const InsidePlace target_place = find_name(roots_, to);
  Place source = place_of(source_place, from);
  Place target = place_of(target_place, to);
  if (source_place.root != target_place.root) {
    throw Error(Code::unsupported, "a file cannot be moved between /workspace and /home/user",
                "copy it, then remove it");
  }
  check_file(renameat2(source.directory.get(), source.name.c_str(), target.directory.get(),
                       target.name.c_str(), RENAME_NOREPLACE),
             "move " + from + " to " + to);
  sync_directory(target.directory, to);
  sync_directory(source.directory, from);
}

void TreeFiles::remove(const std::string& path, bool recursive) const {
  Place place = place_of(roots_, path);
  int directory = place.directory.get();
  struct stat status;
  check_file(fstatat(directory, place.name.c_str(), &status, AT_SYMLINK_NOFOLLOW),
             "remove " + path);
  if (recursive) {
    base::remove_tree_at(directory, place.name);
  } else {
    check_file(unlinkat(directory, place.name.c_str(), S_ISDIR(status.st_mode) ? AT_REMOVEDIR : 0),
               "remove " + path);
  }
  sync_directory(place.directory, path);
}

}  // namespace moorage::layers
