#include "workspace/replica/directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/os/files.h"
#include "base/os/mount.h"

namespace moorage::workspace {
namespace {

constexpr std::array kParts{"packs", "archives", "state"};
constexpr const char* kOwnerFile = "replica";
constexpr const char* kLockFile = "lock";
constexpr std::string_view kOwnerHead = "moorage replica 1\n";
constexpr std::string_view kUnfinished = ".new";
constexpr size_t kMaxOwnerBytes = 200;
constexpr mode_t kOthersMayWrite = 022;

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw Error(Code::unsupported, what, hint);
}

Fd open_below(int directory, const std::string& name, int flags, const std::string& shown) {
  Fd fd(openat(directory, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
               0600));
  if (!fd && (errno == ELOOP || errno == ENOTDIR))
    refuse(shown + " was not made by Moorage", "find out who writes there, then remove it");
  base::check(fd.get(), "open " + shown);
  return fd;
}

Fd open_regular(int directory, const std::string& name, int flags, const std::string& shown) {
  Fd fd = open_below(directory, name, flags, shown);
  struct stat status {};
  base::check(fstat(fd.get(), &status), "check " + shown);
  if (!S_ISREG(status.st_mode))
    refuse(shown + " is not a regular file", "find out who writes there, then remove it");
  return fd;
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

// If its removal fails, the next writer removes it.
base::AtomicFileOptions unfinished() {
  return {.suffix = std::string(kUnfinished), .elsewhere = true};
}

}  // namespace

ReplicaDirectory ReplicaDirectory::for_writing(const Writer& writer) {
  ReplicaDirectory directory(writer.path);
  directory.writer_ = writer;
  directory.top_ = Fd(::open(writer.path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.top_) {
    const int reason = errno;
    const std::string text = "cannot open " + writer.path + ": " + strerrordesc_np(reason);
    if (reason == ENOENT || reason == ENOTDIR || reason == ELOOP)
      refuse(text, "create it as root on another disk: mkdir -m 700 " + writer.path);
    throw Error(Code::unavailable, text, "check that it is mounted and that its server answers");
  }
  directory.refuse_unsafe();
  directory.take_lock(true);
  directory.settle_owner(writer.owner);
  directory.open_parts(true);
  for (const auto part : {ReplicaPart::packs, ReplicaPart::archives, ReplicaPart::state}) {
    for (const auto& name : directory.names(part)) {
      if (name.ends_with(kUnfinished)) directory.remove(part, name);
    }
  }
  return directory;
}

ReplicaDirectory ReplicaDirectory::for_reading(const std::string& path) {
  ReplicaDirectory directory(path);
  directory.top_ = Fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  base::check(directory.top_.get(), "open " + path);
  directory.settle_owner({});
  directory.take_lock(false);
  directory.open_parts(false);
  return directory;
}

void ReplicaDirectory::refuse_unsafe() const {
  struct stat status {};
  base::check(fstat(top_.get(), &status), "check " + path_);
  if (status.st_uid != 0)
    refuse(path_ + " does not belong to root", "chown root: " + path_ + " && chmod 700 " + path_);
  if ((status.st_mode & kOthersMayWrite) != 0)
    refuse("users other than root can write to " + path_, "chmod 700 " + path_);
  for (const std::string& place : writer_.store) {
    if (writer_.same_disk || base::mount_of(path_).device != base::mount_of(place).device) continue;
    refuse(path_ + " is on the disk of the store and would be lost with it",
           "choose a directory on another disk, mount one there, or set replica.same_disk: true");
  }
}

bool ReplicaDirectory::is_still_there() const {
  struct stat now {};
  struct stat then {};
  if (lstat(path_.c_str(), &now) < 0 || fstat(top_.get(), &then) < 0) return false;
  if (now.st_ino != then.st_ino || now.st_dev != then.st_dev) return false;
  refuse_unsafe();
  struct stat mark {};
  return fstatat(top_.get(), kOwnerFile, &mark, AT_SYMLINK_NOFOLLOW) == 0;
}

void ReplicaDirectory::take_lock(bool may_write) {
  const std::string shown = path_ + "/" + kLockFile;
  if (may_write) {
    lock_ = open_regular(top_.get(), kLockFile, O_RDWR | O_CREAT, shown);
  } else {
    struct stat status {};
    if (fstatat(top_.get(), kLockFile, &status, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT) return;
    lock_ = open_regular(top_.get(), kLockFile, O_RDONLY, shown);
  }
  if (flock(lock_.get(), (may_write ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0) return;
  if (errno != EWOULDBLOCK) base::throw_errno("lock " + shown);
  throw Error(Code::conflict, path_ + " is in use: a daemon writes it, or a restore reads it",
              "only one user at a time: stop the other mooraged, or wait until it ends");
}

// Checks the owner; claims an empty directory.
void ReplicaDirectory::settle_owner(const std::string& wanted) {
  const std::string shown = path_ + "/" + kOwnerFile;
  struct stat status {};
  const bool there = fstatat(top_.get(), kOwnerFile, &status, AT_SYMLINK_NOFOLLOW) == 0;
  if (!there && errno != ENOENT) base::throw_errno("check " + shown);
  if (there) {
    const Fd file = open_regular(top_.get(), kOwnerFile, O_RDONLY, shown);
    const std::string text = base::read_at(file.get(), kMaxOwnerBytes, 0);
    if (!text.starts_with(kOwnerHead) || !text.ends_with('\n'))
      refuse(shown + " is from another release", "restore it with the release that wrote it");
    owner_ = text.substr(kOwnerHead.size(), text.size() - kOwnerHead.size() - 1);
    if (wanted.empty() || owner_ == wanted) return;
    refuse(path_ + " belongs to another store, or to this one before its restore",
           "choose an empty directory; delete the old copy once nobody needs it");
  }
  if (wanted.empty()) refuse(path_ + " is not a copy of a store", "name a replica.directory");
  for (const auto& name : base::list_directory(top_.get())) {
    if (name != kLockFile && name != "lost+found" && !name.starts_with(kOwnerFile))
      refuse(path_ + " is not empty: it contains " + name, "choose an empty directory");
  }
  const std::string unfinished_owner = kOwnerFile + std::string(kUnfinished);
  if (unlinkat(top_.get(), unfinished_owner.c_str(), 0) < 0 && errno != ENOENT)
    base::throw_errno("remove " + path_ + ": " + unfinished_owner);
  base::AtomicFile file(top_.get(), kOwnerFile, unfinished());
  file.write(std::string(kOwnerHead) + wanted + "\n");
  file.commit_durable();
  owner_ = wanted;
}

void ReplicaDirectory::open_parts(bool make) {
  for (const char* name : kParts) {
    if (make && mkdirat(top_.get(), name, 0700) < 0 && errno != EEXIST)
      base::throw_errno("make " + path_ + "/" + name);
    parts_.push_back(
        open_below(top_.get(), name, O_RDONLY | O_DIRECTORY, path_ + "/" + std::string(name)));
  }
  if (make) base::sync_elsewhere(top_.get(), path_);
}

int ReplicaDirectory::part(ReplicaPart part) const {
  return parts_.at(static_cast<size_t>(part)).get();
}

std::vector<std::string> ReplicaDirectory::names(ReplicaPart which) const {
  return base::list_directory(part(which));
}

Fd ReplicaDirectory::open(ReplicaPart which, const std::string& name) const {
  if (!is_plain_name(name)) throw Error(Code::corrupted, "invalid file name: " + name);
  return open_regular(part(which), name, O_RDONLY, path_ + ": " + name);
}

void ReplicaDirectory::remove(ReplicaPart which, const std::string& name) const {
  if (!is_plain_name(name)) throw Error(Code::corrupted, "invalid file name: " + name);
  if (unlinkat(part(which), name.c_str(), 0) == 0 || errno == ENOENT) return;
  if (errno != EISDIR && errno != EPERM) base::throw_errno("remove " + path_ + ": " + name);
  base::remove_tree_at(part(which), name);  // a directory, so not one of our files
}

void ReplicaDirectory::sync(ReplicaPart which) const { base::sync_elsewhere(part(which), path_); }

ReplicaFile::ReplicaFile(const ReplicaDirectory& directory, ReplicaPart part,
                         const std::string& name)
    : file_(cleared(directory, part, name), name, unfinished()) {}

// A kill may have left its unfinished file.
int ReplicaFile::cleared(const ReplicaDirectory& directory, ReplicaPart part,
                         const std::string& name) {
  directory.remove(part, name + std::string(kUnfinished));
  return directory.part(part);
}

void ReplicaFile::write(std::string_view bytes) {
  file_.write(bytes);
  bytes_ += bytes.size();
}

}  // namespace moorage::workspace
