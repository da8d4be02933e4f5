#include "cli/local/copied_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/os/file_time.h"

namespace moorage::cli {
namespace {

constexpr uint32_t kPermissions = 0777;

// Of a path: "" or the part up to its last slash.
std::string directory_of(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

std::string name_beside() {
  uint64_t number = 0;
  base::check(::getrandom(&number, sizeof number, 0), "get a random number");
  return ".moorage-" + std::to_string(number);
}

bool may_not_create(int error) { return error == EACCES || error == EPERM || error == EROFS; }

}  // namespace

CopiedFile::CopiedFile(int parent, std::string name, Links links)
    : name_(std::move(name)), parent_(parent), last_(name_), links_(links), beside_(name_beside()) {
  const std::string directory = directory_of(name_);
  if (directory == name_) return;  // of a name that ends with a slash, which open(2) refuses
  if (!directory.empty()) {
    directory_.reset(base::check(
        ::openat(parent, directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC), "create " + name_));
    parent_ = directory_.get();
    last_ = name_.substr(directory.size());
  }
  if (!suits_replacing()) return;
  create_beside();
  is_beside_ = fd_ && takes_owner();
  is_beside_ ? static_cast<void>(content_.emplace(fd_.get())) : remove_beside();
}

CopiedFile::~CopiedFile() { remove_beside(); }

void CopiedFile::remove_beside() {
  if (has_name_) ::unlinkat(parent_, beside_.c_str(), 0);
  has_name_ = false;
  fd_.reset();
}

bool CopiedFile::suits_replacing() const {
  struct statx found {};
  if (::statx(parent_, last_.c_str(), AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &found) != 0)
    return true;
  if (S_ISLNK(found.stx_mode)) return links_ == Links::not_followed;
  // A mount, such as /etc/hosts in a container, cannot be replaced.
  return S_ISREG(found.stx_mode) && found.stx_nlink == 1 &&
         (found.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0 &&
         ::faccessat(parent_, last_.c_str(), W_OK, AT_EACCESS) == 0;
}

// Opens nothing where the directory does not allow it: perhaps it allows to write the file itself.
void CopiedFile::create_beside() {
  // Without a name: a kill leaves nothing. NFS and others lack that.
  fd_.reset(::openat(parent_, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!fd_ && errno == EOPNOTSUPP) {
    fd_.reset(::openat(parent_, beside_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    has_name_ = static_cast<bool>(fd_);
  }
  if (!fd_ && !may_not_create(errno)) base::throw_errno("create " + name_);
}

bool CopiedFile::takes_owner() const {
  struct stat old {};
  const bool replaces =
      ::fstatat(parent_, last_.c_str(), &old, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(old.st_mode);
  return !replaces || ::fchown(fd_.get(), old.st_uid, old.st_gid) == 0;
}

void CopiedFile::open_itself() {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  const int follow = links_ == Links::followed ? 0 : O_NOFOLLOW;
  fd_.reset(
      base::check(::openat(parent_, last_.c_str(), kFlags | follow, 0600), "create " + name_));
  struct stat found {};
  base::check(::fstat(fd_.get(), &found), "inspect " + name_);
  if (S_ISREG(found.st_mode)) content_.emplace(fd_.get());
}

void CopiedFile::write(std::string_view bytes) {
  if (!fd_) open_itself();
  content_ ? content_->write(bytes) : base::write_all(fd_.get(), bytes);
}

void CopiedFile::commit(const FileState& state) {
  if (!fd_) open_itself();
  if (!content_) return;
  content_->finish();
  set_state(fd_.get(), name_, state);
  if (!is_beside_) return;
  if (!has_name_) {
    base::check(::linkat(AT_FDCWD, base::proc_path(fd_.get()).c_str(), parent_, beside_.c_str(),
                         AT_SYMLINK_FOLLOW),
                "create " + name_);
    has_name_ = true;
  }
  base::check(::renameat(parent_, beside_.c_str(), parent_, last_.c_str()), "replace " + name_);
  has_name_ = false;
}

void create_link(int parent, const std::string& name, const std::string& target,
                 int64_t modified_ns) {
  const std::string beside = directory_of(name) + name_beside();
  base::check(::symlinkat(target.c_str(), parent, beside.c_str()), "create " + name);
  const auto times = base::modified_at(modified_ns);
  const bool complete =
      ::utimensat(parent, beside.c_str(), times.data(), AT_SYMLINK_NOFOLLOW) == 0 &&
      ::renameat(parent, beside.c_str(), parent, name.c_str()) == 0;
  if (complete) return;
  const int error = errno;
  ::unlinkat(parent, beside.c_str(), 0);
  errno = error;
  base::throw_errno("create " + name);
}

void set_state(int fd, const std::string& name, const FileState& state) {
  base::check(::fchmod(fd, state.mode & kPermissions), "set the mode of " + name);
  const auto times = base::modified_at(state.modified_ns);
  base::check(::futimens(fd, times.data()), "set the time of " + name);
}

}  // namespace moorage::cli
