// Owned file descriptors, and the few operations every layer needs on them. Invariant: an Fd holds
// at most one open descriptor and closes it exactly once. All descriptors made here are
// close-on-exec. Calls retry on EINTR.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

struct msghdr;

namespace moorage::base {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept;
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);
  Fd duplicate() const;  // F_DUPFD_CLOEXEC

 private:
  int fd_ = -1;
};

// Names the open node itself, even a link open with O_PATH. Needs /proc.
std::string proc_path(int fd);

struct Pipe {
  Fd read_end;
  Fd write_end;
};
Pipe make_pipe();

// Opens /dev/null on any of 0, 1 and 2 that are closed, so that no other file gets these numbers.
// Call it first in main, before opening anything.
void fill_standard_fds();

void write_all(int fd, std::string_view bytes);
// Reads up to size bytes; fewer only at end of file.
std::string read_up_to(int fd, size_t size);
// pread until size bytes are read or the file ends.
std::string read_at(int fd, size_t size, uint64_t offset);
void write_at(int fd, std::string_view bytes, uint64_t offset);  // pwrite, all of it

// One message with descriptors (SCM_RIGHTS) on a unix socket; bytes must not be empty.
void send_with_fds(int socket, std::string_view bytes, std::span<const int> fds);
struct Received {
  std::string bytes;  // empty: the peer closed
  std::vector<Fd> fds;
};
Received receive_with_fds(int socket, size_t max_bytes, size_t max_fds = 16);
// All that recvmsg(2) received with the message: the kernel has already installed them.
std::vector<Fd> take_fds(msghdr& message);

struct PeerCredentials {
  pid_t pid;
  uid_t uid;
  gid_t gid;
};
PeerCredentials peer_credentials(int socket);  // SO_PEERCRED
// SO_PEERGROUPS: the peer's supplementary groups at the time it connected.
std::vector<gid_t> peer_groups(int socket);

// Unix stream sockets by path. Paths of 108 bytes and more (sun_path) go through /proc/self/fd of
// their directory, so a deep store works too. listen_unix unlinks an existing socket.
Fd listen_unix(const std::string& path, mode_t mode, int backlog = 128);
Fd connect_unix(const std::string& path, int timeout_ms);

// True when the descriptor is readable (or closed by the peer) within timeout_ms; -1 waits without
// limit.
bool wait_readable(int fd, int timeout_ms);

}  // namespace moorage::base

namespace moorage {
using base::Fd;
}  // namespace moorage
