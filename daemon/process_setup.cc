#include "daemon/process_setup.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/os/fd.h"
#include "base/os/files.h"

namespace moorage::daemon {
namespace {

// Set by a signal handler, which may touch nothing else.
std::atomic<bool> hung_up{false};
static_assert(std::atomic<bool>::is_always_lock_free);

using base::check;

constexpr int kFirstPassedFd = 3;  // SD_LISTEN_FDS_START

int number_from_environment(const char* name) {
  const char* text = std::getenv(name);
  int number = 0;
  if (text) std::from_chars(text, text + std::strlen(text), number);
  return number;
}

int passed_sockets() {
  return number_from_environment("LISTEN_PID") == getpid() ? number_from_environment("LISTEN_FDS")
                                                           : 0;
}

void set_limit(__rlimit_resource resource, rlim_t soft, rlim_t hard) {
  const rlimit limit{soft, hard};
  check(setrlimit(resource, &limit), "set a process limit");
}

std::optional<gid_t> find_group(const std::string& name) {
  group entry{};
  group* found = nullptr;
  std::string room(64 << 10, '\0');
  const int error = getgrnam_r(name.c_str(), &entry, room.data(), room.size(), &found);
  if (error != 0 || !found) return std::nullopt;
  return found->gr_gid;
}

}  // namespace

void set_up_process() {
  base::fill_standard_fds();
  const unsigned first = kFirstPassedFd + static_cast<unsigned>(passed_sockets());
  check(syscall(SYS_close_range, first, ~0U, 0), "close inherited descriptors");
  set_limit(RLIMIT_CORE, 0, 0);
  check(prctl(PR_SET_DUMPABLE, 0), "protect the process's memory");
  rlimit files{};
  check(getrlimit(RLIMIT_NOFILE, &files), "read a process limit");
  set_limit(RLIMIT_NOFILE, files.rlim_max, files.rlim_max);
  umask(077);
  // glibc's default is eight arenas per CPU, and each keeps the memory of its largest answer.
  mallopt(M_ARENA_MAX, 2);
  // By default both grow with the largest block ever freed, and tens of MiB stay in the heap.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 4 << 20);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, [](int) { hung_up = true; });
}

bool take_hangup() { return hung_up.exchange(false); }

base::Fd listen_for_clients(const std::string& path, const std::string& group) {
  if (passed_sockets() > 0) {
    base::Fd passed(kFirstPassedFd);
    check(fcntl(passed.get(), F_SETFD, FD_CLOEXEC), "use the socket from the service manager");
    return passed;
  }
  const std::string directory = path.substr(0, path.rfind('/'));
  if (!directory.empty()) base::make_directories(directory, 0755);
  base::Fd listener = base::listen_unix(path, 0600);
  const auto gid = find_group(group);
  if (!gid) {
    base::log(base::LogLevel::warning, "daemon.no_group",
              {{"group", group},
               {"effect", "only root can use the API"},
               {"hint", "groupadd --system " + group}});
    return listener;
  }
  // Group before mode: otherwise the group inherited from the directory gets access for a moment.
  check(chown(path.c_str(), 0, *gid), "set the group of " + path);
  check(chmod(path.c_str(), 0660), "set the mode of " + path);
  return listener;
}

void tell_service_manager(std::string_view state) {
  const char* name = std::getenv("NOTIFY_SOCKET");
  if (!name) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::strlen(name);
  if (length == 0 || length >= sizeof(address.sun_path)) return;
  std::memcpy(address.sun_path, name, length);
  if (name[0] == '@') address.sun_path[0] = '\0';
  const base::Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  const ssize_t sent = sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL,
                              reinterpret_cast<const sockaddr*>(&address), size);
  if (sent < 0)
    base::log(base::LogLevel::warning, "daemon.notify", {{"error", std::strerror(errno)}});
}

void exit_after(std::chrono::seconds time) {
  std::thread([time] {
    std::this_thread::sleep_for(time);
    _exit(0);
  }).detach();
}

}  // namespace moorage::daemon
