#include "base/os/fd.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>

#include "base/error.h"

namespace moorage::base {
namespace {

constexpr size_t kReadChunkBytes = 64 << 10;

void wait_writable(int fd) {
  pollfd entry{fd, POLLOUT, 0};
  while (poll(&entry, 1, -1) < 0) {
    if (errno != EINTR) throw_errno("wait until a descriptor is writable");
  }
}

// Calls read_some(place, most bytes, bytes so far) until `size` bytes are read or the file ends.
template <typename Read>
std::string read_pieces(size_t size, const Read& read_some) {
  std::string bytes;
  while (bytes.size() < size) {
    const size_t old_size = bytes.size();
    bytes.resize(old_size + std::min(size - old_size, kReadChunkBytes));
    const ssize_t count = read_some(bytes.data() + old_size, bytes.size() - old_size, old_size);
    const int error_number = errno;
    bytes.resize(old_size + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0) break;
    if (count < 0 && error_number != EINTR) throw_errno("read", error_number);
  }
  return bytes;
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) reset(other.release());
  return *this;
}

void Fd::reset(int fd) {
  assert(fd < 0 || fd != fd_);
  // close(2) frees the number even when it fails with EINTR: never close again.
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

Fd Fd::duplicate() const {
  // From 3 up: a duplicate must not become a standard stream.
  return Fd(check(fcntl(fd_, F_DUPFD_CLOEXEC, 3), "duplicate a descriptor"));
}

std::string proc_path(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

Pipe make_pipe() {
  int ends[2];
  check(pipe2(ends, O_CLOEXEC), "create a pipe");
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

void fill_standard_fds() {
  // open(2) returns the lowest free number.
  Fd above;
  do {
    above.release();  // one of the three: stays open
    above.reset(check(open("/dev/null", O_RDWR | O_CLOEXEC), "open /dev/null"));
  } while (above.get() <= STDERR_FILENO);
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      wait_writable(fd);
    } else if (errno != EINTR) {
      throw_errno("write");
    }
  }
}

void write_at(int fd, std::string_view bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    check(written, "write");
    offset += static_cast<uint64_t>(written);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

std::string read_up_to(int fd, size_t size) {
  return read_pieces(size, [fd](char* into, size_t most, size_t) {
    ssize_t count = 0;
    while ((count = read(fd, into, most)) < 0 && errno == EAGAIN) wait_readable(fd, -1);
    return count;
  });
}

std::string read_at(int fd, size_t size, uint64_t offset) {
  return read_pieces(size, [fd, offset](char* into, size_t most, size_t done) {
    return pread(fd, into, most, static_cast<off_t>(offset + done));
  });
}

PeerCredentials peer_credentials(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  check(getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size), "identify a client");
  return {credentials.pid, credentials.uid, credentials.gid};
}

std::vector<gid_t> peer_groups(int socket) {
  std::vector<gid_t> groups(64);
  for (;;) {
    socklen_t size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    const int result = getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
    if (result < 0 && errno != ERANGE) throw_errno("get the groups of a client");
    groups.resize(size / sizeof(gid_t));  // as many as exist, also after ERANGE
    if (result == 0) return groups;
  }
}

bool wait_readable(int fd, int timeout_ms) {
  using std::chrono::steady_clock;
  const auto start = steady_clock::now();
  int left_ms = timeout_ms;
  for (;;) {
    pollfd entry{fd, POLLIN, 0};
    int ready = poll(&entry, 1, left_ms);
    if (ready > 0 && (entry.revents & POLLNVAL)) throw_errno("wait for a descriptor", EBADF);
    if (ready >= 0) return ready > 0;
    if (errno != EINTR) throw_errno("wait for a descriptor");
    if (timeout_ms < 0) continue;
    const auto passed =
        std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - start);
    left_ms = static_cast<int>(std::max<int64_t>(0, timeout_ms - passed.count()));
  }
}

}  // namespace moorage::base
