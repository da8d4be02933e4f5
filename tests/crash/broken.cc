// Breaks single guarantees of a daemon; preloaded by the fault rig, which must detect the damage.
// The programs themselves have no such switch. BROKEN lists the broken ones, separated by spaces:
//
//   sync              fsync, fdatasync, syncfs do nothing
//   directory-sync    fsync of a directory does nothing
//   log-sync          fdatasync of the database's log does nothing
//   overlay           overlays are mounted `volatile`: an fsync inside does nothing
//   slow-sync=MS      each of these calls takes so many milliseconds longer
//   boot-id=FILE      the kernel's boot id is read from FILE, like after a reboot. A mount over it
//                     would hide a part of /proc, and no sandbox could mount /proc then
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <string_view>

namespace {

// The word, or the text after its `=`; null if not listed.
const char* broken(const char* what) {
  static thread_local std::string value;
  const char* list = getenv("BROKEN");
  std::istringstream words(list ? list : "");
  for (std::string word; words >> word;) {
    const size_t end = word.find('=');
    if (word.substr(0, end) != what) continue;
    value = end == std::string::npos ? word : word.substr(end + 1);
    return value.c_str();
  }
  return nullptr;
}

template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool is_log(int fd) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t size = readlink(link.c_str(), path.data(), path.size());
  return size > 0 &&
         std::string_view(path.data(), static_cast<size_t>(size)).ends_with("/state.db-wal");
}

int sync_with(const char* name, int fd) {
  if (const char* delay_ms = broken("slow-sync")) {
    const long nanoseconds = std::strtol(delay_ms, nullptr, 10) * 1'000'000;
    const timespec pause{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
    nanosleep(&pause, nullptr);
  }
  if (broken("sync") || (broken("log-sync") && is_log(fd))) return 0;
  struct stat status {};
  if (broken("directory-sync") && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode) &&
      std::strcmp(name, "syncfs") != 0) {
    return 0;
  }
  return real<int(int)>(name)(fd);
}

}  // namespace

extern "C" {

int fsync(int fd) { return sync_with("fsync", fd); }
int fdatasync(int fd) { return sync_with("fdatasync", fd); }
int syncfs(int fd) noexcept { return sync_with("syncfs", fd); }

int openat(int directory, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const auto mode = static_cast<mode_t>(va_arg(list, int));
  va_end(list);
  if (std::strcmp(path, "/proc/sys/kernel/random/boot_id") == 0) {
    if (const char* other = broken("boot-id")) path = other;
  }
  return real<int(int, const char*, int, ...)>("openat")(directory, path, flags, mode);
}

int fsconfig(int fd, unsigned command, const char* key, const void* value, int aux) noexcept {
  const auto call = real<int(int, unsigned, const char*, const void*, int)>("fsconfig");
  if (command == FSCONFIG_CMD_CREATE && broken("overlay")) {
    call(fd, FSCONFIG_SET_FLAG, "volatile", nullptr, 0);
  }
  return call(fd, command, key, value, aux);
}

}  // extern "C"
