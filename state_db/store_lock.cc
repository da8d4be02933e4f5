#include "state_db/store_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"

namespace moorage::state_db {

Fd lock_store(const std::string& directory) {
  const std::string path = directory + "/state.db.lock";
  Fd file = base::open_file(path, O_RDWR | O_CREAT, 0600);
  if (!base::lock_file(file.get(), path)) {
    const std::string pid = base::read_at(file.get(), 20, 0);
    throw Error(
        Code::conflict, "the store " + directory + " is in use by process " + pid,
        "Only one mooraged may own a store: stop the other one, or choose another directory.");
  }
  const std::string pid = std::to_string(getpid());
  base::check(ftruncate(file.get(), 0), "truncate " + path);
  base::write_all(file.get(), pid);
  return file;
}

Fd lock_store_id(const std::string& id, const std::string& directory) {
  constexpr const char* kLocks = "/run/moorage-stores";
  constexpr size_t kMostText = 8192;
  if (::access("/run", W_OK) != 0 && errno == EROFS) {
    base::log(base::LogLevel::warning, "store.id_not_locked",
              {{"id", id}, {"hint", "run no copy of this store on this host"}});
    return {};
  }
  base::make_directories(kLocks);
  const std::string path = std::string(kLocks) + "/" + id;
  Fd file = base::open_file(path, O_RDWR | O_CREAT, 0600);
  if (!base::lock_file(file.get(), path)) {
    throw Error(
        Code::conflict,
        "a copy of this store runs on this host: " + base::read_at(file.get(), kMostText, 0),
        "Each would end the sandboxes of the other. Stop that mooraged first, or run this "
        "one on another host.");
  }
  base::check(ftruncate(file.get(), 0), "truncate " + path);
  base::write_all(file.get(), "process " + std::to_string(getpid()) + " in " + directory);
  return file;
}

bool make_reserve(const std::string& directory, uint64_t bytes) {
  if (bytes == 0) return true;
  const std::string path = directory + "/reserve";
  const Fd file = base::open_file(path, O_RDWR | O_CREAT, 0600);
  struct stat status {};
  base::check(fstat(file.get(), &status), "inspect " + path);
  // From the space available to all users: the file system's reserve for root would not help them
  // when the file is released.
  if (static_cast<uint64_t>(status.st_size) < bytes &&
      base::file_system_space(directory).free_bytes < bytes) {
    unlink(path.c_str());
    return false;
  }
  // Not every file system can allocate without writing; posix_fallocate writes zeros there.
  const int error = posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
  if (error == 0) return true;
  unlink(path.c_str());
  if (error == ENOSPC || error == EDQUOT) return false;
  base::throw_errno("allocate " + path, error);
}

bool reserve_is_there(const std::string& directory, uint64_t bytes) {
  struct stat status {};
  if (bytes == 0) return true;
  return lstat((directory + "/reserve").c_str(), &status) == 0 &&
         static_cast<uint64_t>(status.st_size) >= bytes;
}

bool release_reserve(const std::string& directory) {
  return unlink((directory + "/reserve").c_str()) == 0;
}

}  // namespace moorage::state_db
