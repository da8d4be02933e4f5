#include "base/byte_pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace moorage::base {
namespace {

constexpr int kPipeBytes = 1 << 20;

}  // namespace

BytePipe::BytePipe() {
  base::Pipe pipe = base::make_pipe();
  read_end_ = std::move(pipe.read_end);
  write_end_ = std::move(pipe.write_end);
  fcntl(write_end_.get(), F_SETPIPE_SZ, kPipeBytes);  // a smaller pipe is only slower
  base::check(fcntl(write_end_.get(), F_SETFL, O_NONBLOCK), "set up a pipe");
}

void BytePipe::write(std::string_view bytes) {
  constexpr std::chrono::milliseconds kAgain{10'000};
  while (!bytes.empty()) bytes.remove_prefix(write_some(bytes, kAgain));
}

size_t BytePipe::write_some(std::string_view bytes, std::chrono::milliseconds patience) {
  pollfd room{write_end_.get(), POLLOUT, 0};
  if (::poll(&room, 1, static_cast<int>(patience.count())) < 0 && errno != EINTR)
    base::throw_errno("wait for a pipe");
  const ssize_t count = ::write(write_end_.get(), bytes.data(), bytes.size());
  if (count >= 0) return static_cast<size_t>(count);
  if (errno == EAGAIN || errno == EINTR) return 0;
  if (errno == EPIPE) throw Error(Code::unavailable, "the reader closed the pipe");
  base::throw_errno("write to a pipe");
}

void BytePipe::fail(const Error& reason) {
  {
    const std::lock_guard lock(mutex_);
    error_ = reason;
  }
  write_end_.reset();
}

std::string BytePipe::read(size_t max_bytes) {
  std::string bytes(max_bytes, '\0');
  ssize_t count = -1;
  do {
    count = ::read(read_end_.get(), bytes.data(), bytes.size());
  } while (count < 0 && errno == EINTR);
  bytes.resize(static_cast<size_t>(base::check(count, "read a pipe")));
  if (!bytes.empty()) return bytes;
  const std::lock_guard lock(mutex_);
  if (error_) throw Error(*error_);
  return bytes;
}

std::optional<std::string> BytePipe::try_read(size_t max_bytes) {
  if (!base::wait_readable(read_end_.get(), 0)) return std::nullopt;
  return read(max_bytes);
}

}  // namespace moorage::base
