#include "cli/local/new_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/os/files.h"

namespace moorage::cli {
namespace {

[[noreturn]] void refuse(const std::string& path) {
  throw base::Error(base::Code::already_exists, path + " already exists",
                    "replace it with --force, or choose another name");
}

}  // namespace

NewFile::NewFile(const std::string& path, Existing existing)
    : path_(path), temporary_(path + ".part"), existing_(existing) {
  if (existing == Existing::refused && base::path_exists(path)) refuse(path);
  if (base::path_exists(temporary_)) {
    throw base::Error(base::Code::already_exists, temporary_ + " already exists",
                      "another moorage is writing it; if none is, delete it");
  }
  fd_ = base::open_file(temporary_, O_RDWR | O_CREAT | O_EXCL, 0600);
}

NewFile::~NewFile() {
  if (!done_) ::unlink(temporary_.c_str());
}

void NewFile::commit() {
  base::check(::fsync(fd_.get()), "sync " + temporary_);
  const unsigned flags = existing_ == Existing::refused ? RENAME_NOREPLACE : 0;
  int renamed = ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), flags);
  if (renamed != 0 && flags != 0 && errno == EINVAL) {  // NFS and others lack the flag
    renamed = ::link(temporary_.c_str(), path_.c_str());
    if (renamed == 0) ::unlink(temporary_.c_str());
  }
  if (renamed != 0) {
    if (errno == EEXIST) refuse(path_);
    base::throw_errno("rename " + temporary_);
  }
  done_ = true;
  const size_t slash = path_.rfind('/');
  base::sync_directory(slash == std::string::npos ? "." : path_.substr(0, slash + 1));
}

}  // namespace moorage::cli
