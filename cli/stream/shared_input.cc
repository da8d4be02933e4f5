#include "cli/stream/shared_input.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/os/files.h"

namespace moorage::cli {
namespace {

bool is_pipe(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode);
}

bool is_seekable_file(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && ::lseek(fd, 0, SEEK_CUR) >= 0;
}

// Of a stream: recvmsg(2) of any other gives whole messages.
bool is_socket(int fd) {
  int type = 0;
  socklen_t size = sizeof type;
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

// Of a socket, also one that is shut down for writing at the other end.
bool has_writers(int fd) {
  pollfd polled{fd, POLLIN | POLLRDHUP, 0};
  return ::poll(&polled, 1, 0) <= 0 || (polled.revents & (POLLHUP | POLLRDHUP)) == 0;
}

size_t waiting_bytes(int fd) {
  int waiting = 0;
  base::check(::ioctl(fd, FIONREAD, &waiting), "count the bytes of standard input");
  return static_cast<size_t>(std::max(waiting, 0));
}

size_t read_some(int fd, char* buffer, size_t size) {
  for (;;) {
    const ssize_t got = ::read(fd, buffer, size);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) base::throw_errno("read standard input");
  }
}

// Another reader may empty the pipe at any moment, and a read of it would wait. 0: it is empty.
size_t take_some(int pipe, int nowhere, size_t size) {
  for (;;) {
    const ssize_t taken = ::splice(pipe, nullptr, nowhere, nullptr, size, SPLICE_F_NONBLOCK);
    if (taken >= 0) return static_cast<size_t>(taken);
    if (errno == EAGAIN) return 0;
    if (errno != EINTR) base::throw_errno("take from standard input");
  }
}

size_t receive_some(int socket, std::vector<char>& into, size_t size) {
  into.resize(std::max(into.size(), size));
  for (;;) {
    const ssize_t taken = ::recv(socket, into.data(), size, MSG_DONTWAIT);
    if (taken >= 0) return static_cast<size_t>(taken);
    if (errno == EAGAIN) return 0;
    if (errno != EINTR) base::throw_errno("take from standard input");
  }
}

}  // namespace

bool SharedInput::suits(int fd) { return is_pipe(fd) || is_socket(fd) || is_seekable_file(fd); }

SharedInput::SharedInput(int fd)
    : fd_(fd),
      kind_(is_pipe(fd)     ? Kind::pipe
            : is_socket(fd) ? Kind::socket
                            : Kind::file) {
  if (kind_ == Kind::file)
    start_ = base::check(::lseek(fd, 0, SEEK_CUR), "find the place in standard input");
  if (kind_ != Kind::pipe) return;
  spare_ = base::make_pipe();
  nowhere_ = base::open_file("/dev/null", O_WRONLY);
  // As many pages as the pipe has; with fewer, copies are shorter.
  const int size = ::fcntl(fd, F_GETPIPE_SZ);
  if (size > 0) ::fcntl(spare_.write_end.get(), F_SETPIPE_SZ, size);
}

SharedInput::Peek SharedInput::peek(uint64_t from, char* buffer, size_t size) {
  if (kind_ != Kind::file) return peek_stream(from, buffer, size);
  for (;;) {
    const ssize_t got = ::pread(fd_, buffer, size, start_ + static_cast<off_t>(from));
    if (got >= 0) return {static_cast<size_t>(got), got == 0};
    if (errno != EINTR) base::throw_errno("read standard input");
  }
}

SharedInput::Peek SharedInput::peek_stream(uint64_t from, char* buffer, size_t size) {
  const auto known = static_cast<size_t>(from - consumed_);
  const bool written_to = has_writers(fd_);  // before the count, which is then final
  if (waiting_bytes(fd_) <= known) return {0, !written_to};
  return kind_ == Kind::pipe ? peek_pipe(known, buffer, size) : peek_socket(known, buffer, size);
}

SharedInput::Peek SharedInput::peek_socket(size_t known, char* buffer, size_t size) {
  copy_.resize(known + size);
  ssize_t copied = 0;
  do {
    copied = ::recv(fd_, copy_.data(), copy_.size(), MSG_PEEK | MSG_DONTWAIT);
  } while (copied < 0 && errno == EINTR);
  if (copied < 0 && errno == EAGAIN) return {};
  const auto all = static_cast<size_t>(base::check(copied, "copy standard input"));
  if (all <= known) return {};
  std::copy(copy_.begin() + static_cast<ssize_t>(known), copy_.begin() + copied, buffer);
  return {all - known, false};
}

SharedInput::Peek SharedInput::peek_pipe(size_t known, char* buffer, size_t size) {
  ssize_t copied = 0;
  do {
    copied = ::tee(fd_, spare_.write_end.get(), known + size, SPLICE_F_NONBLOCK);
  } while (copied < 0 && errno == EINTR);
  if (copied < 0 && errno == EAGAIN) return {};
  auto left = static_cast<size_t>(base::check(copied, "copy standard input"));
  for (size_t skipped = 0; skipped < known && left > 0;) {
    const size_t got =
        read_some(spare_.read_end.get(), buffer, std::min({known - skipped, size, left}));
    skipped += got;
    left -= got;
  }
  Peek peek;
  while (peek.bytes < left)
    peek.bytes += read_some(spare_.read_end.get(), buffer + peek.bytes, left - peek.bytes);
  return peek;
}

void SharedInput::consume(uint64_t until) {
  if (until <= consumed_) return;
  if (kind_ == Kind::file) {
    base::check(::lseek(fd_, start_ + static_cast<off_t>(until), SEEK_SET),
                "move in standard input");
    consumed_ = until;
    return;
  }
  while (consumed_ < until) {
    const auto size = static_cast<size_t>(until - consumed_);
    const size_t taken =
        kind_ == Kind::pipe ? take_some(fd_, nowhere_.get(), size) : receive_some(fd_, copy_, size);
    if (taken == 0) return;
    consumed_ += taken;
  }
}

}  // namespace moorage::cli
