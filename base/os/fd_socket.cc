// Unix sockets of base/os/fd.h: passing descriptors, and paths longer than sun_path.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/os/fd.h"

namespace moorage::base {
namespace {

constexpr size_t kMaxFdsInMessage = 253;  // SCM_MAX_FD of the kernel

// A path that fits sun_path, and the directory descriptor it goes through, if any.
struct SocketPath {
  std::string path;
  Fd directory;

  explicit SocketPath(const std::string& full) : path(full) {
    if (full.empty() || full.find('\0') != std::string::npos) {
      throw Error(Code::invalid_argument, "the path of a socket is empty or invalid");
    }
    if (full.size() < sizeof sockaddr_un::sun_path) return;
    size_t slash = full.rfind('/');
    if (slash == std::string::npos) throw_errno("use " + full, ENAMETOOLONG);
    std::string parent = slash == 0 ? "/" : full.substr(0, slash);
    directory = Fd(check(open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC), "open " + parent));
    path = "/proc/self/fd/" + std::to_string(directory.get()) + full.substr(slash);
    if (path.size() >= sizeof sockaddr_un::sun_path) throw_errno("use " + full, ENAMETOOLONG);
  }

  sockaddr_un address() const {
    sockaddr_un result{};
    result.sun_family = AF_UNIX;
    memcpy(result.sun_path, path.c_str(), path.size() + 1);
    return result;
  }
};

void set_send_timeout(int socket, int64_t milliseconds) {
  timeval value{};
  value.tv_sec = milliseconds / 1000;
  value.tv_usec = milliseconds % 1000 * 1000;
  check(setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &value, sizeof value), "set up a socket");
}

int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace

void send_with_fds(int socket, std::string_view bytes, std::span<const int> fds) {
  assert(!bytes.empty() && fds.size() <= kMaxFdsInMessage);
  std::vector<char> control(fds.empty() ? 0 : CMSG_SPACE(fds.size_bytes()));
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  check(sent, "send a message");
  // A stream may send only a part; the descriptors went with its first byte.
  for (size_t done = static_cast<size_t>(sent); done < bytes.size();) {
    sent = send(socket, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    done += static_cast<size_t>(check(sent, "send a message"));
  }
}

std::vector<Fd> take_fds(msghdr& message) {
  std::vector<Fd> fds;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    size_t fd_count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < fd_count; ++i) {
      int fd = -1;
      memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

Received receive_with_fds(int socket, size_t max_bytes, size_t max_fds) {
  Received received;
  received.bytes.resize(max_bytes);
  std::vector<char> control(CMSG_SPACE(sizeof(int) * max_fds));
  iovec part{received.bytes.data(), max_bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t count = 0;
  do {
    count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  received.bytes.resize(static_cast<size_t>(check(count, "receive a message")));
  received.fds = take_fds(message);
  // CMSG_SPACE rounds up, so the kernel may have had room for one descriptor more than requested.
  if ((message.msg_flags & MSG_CTRUNC) || received.fds.size() > max_fds) {
    throw Error(Code::invalid_argument, "a message has too many descriptors");
  }
  return received;
}

Fd listen_unix(const std::string& path, mode_t mode, int backlog) {
  SocketPath place(path);
  if (unlink(place.path.c_str()) < 0 && errno != ENOENT) throw_errno("remove " + path);
  Fd socket_fd(check(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "create a socket"));
  sockaddr_un address = place.address();
  check(bind(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address),
        "bind " + path);
  // No one can connect before listen(2), so the mode set briefly by the umask is harmless.
  check(chmod(place.path.c_str(), mode), "set the mode of " + path);
  check(listen(socket_fd.get(), backlog), "listen on " + path);
  return socket_fd;
}

Fd connect_unix(const std::string& path, int timeout_ms) {
  SocketPath place(path);
  Fd socket_fd(check(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "create a socket"));
  sockaddr_un address = place.address();
  const int64_t end_ms = now_ms() + timeout_ms;
  // A unix connect waits only for room in the peer's backlog; SO_SNDTIMEO limits that (unix(7)). A
  // non-blocking connect would fail at once, without a way to poll.
  for (;;) {
    set_send_timeout(socket_fd.get(), std::max<int64_t>(1, end_ms - now_ms()));
    if (connect(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) break;
    if (errno == EAGAIN || (errno == EINTR && now_ms() >= end_ms)) {
      throw Error(Code::deadline_exceeded, "cannot connect to " + path + ": no answer in " +
                                               std::to_string(timeout_ms) + " ms");
    }
    if (errno == ECONNREFUSED) {
      throw Error(Code::unavailable, "cannot connect to " + path + ": no program listens there");
    }
    if (errno != EINTR) throw_errno("connect to " + path);
  }
  set_send_timeout(socket_fd.get(), 0);
  return socket_fd;
}

}  // namespace moorage::base
