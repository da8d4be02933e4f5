#include "link/drivers/stream_run.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/error.h"

namespace moorage::link {
namespace {

constexpr size_t kPiece = 192 << 10;  // of input: in base64, 256 KiB of a request
constexpr std::chrono::seconds kEndFollows{2};

}  // namespace

StreamRun::StreamRun(std::unique_ptr<Cancel> cancel, std::unique_ptr<ProgramStream> program)
    : cancel_(std::move(cancel)), program_(std::move(program)) {
  std::array<int, 2> ends{};
  base::check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()),
              "make a pair of sockets");
  outer_.reset(ends[0]);
  inner_.reset(ends[1]);
  output_ = std::thread([this] { carry_output(); });
  input_ = std::thread([this] { carry_input(); });
}

StreamRun::~StreamRun() {
  cancel_->cancel();
  ended_.notify_all();
  output_.join();
  input_.join();
}

std::optional<Error> StreamRun::reason() {
  const std::lock_guard lock(mutex_);
  return reason_;
}

// The first reason counts: others follow from it.
void StreamRun::fail(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  const std::lock_guard lock(mutex_);
  if (!reason_ && !over_) reason_ = known != nullptr ? *known : Error(Code::internal, error.what());
}

bool StreamRun::is_over() {
  const std::lock_guard lock(mutex_);
  return over_;
}

bool StreamRun::becomes_over(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, patience, [this] { return over_ || cancel_->cancelled(); });
}

bool StreamRun::wait(short events) const {
  for (;;) {
    std::array<pollfd, 2> polled{{{inner_.get(), events, 0}, {cancel_->fd(), POLLIN, 0}}};
    const int ready = ::poll(polled.data(), polled.size(), -1);
    if (ready < 0 && errno != EINTR) base::throw_errno("wait for a socket");
    if (ready > 0) return polled[1].revents == 0;
  }
}

void StreamRun::pass_on(std::string_view output) {
  while (!output.empty()) {
    const ssize_t sent =
        ::send(inner_.get(), output.data(), output.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) output.remove_prefix(static_cast<size_t>(sent));
    if (sent < 0 && errno != EAGAIN && errno != EINTR) base::throw_errno("pass output on");
    if (!output.empty() && !wait(POLLOUT)) throw Error(Code::unavailable, "cancelled");
  }
}

void StreamRun::carry_output() {
  try {
    std::string output;
    while (program_->receive(output)) pass_on(output);
  } catch (const std::exception& error) {
    fail(error);
  }
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_all();
  // The reason stands before the end is seen. This ends the other thread, too.
  ::shutdown(inner_.get(), SHUT_RDWR);
  program_->release();
}

void StreamRun::carry_input() {
  try {
    std::string piece(kPiece, '\0');
    while (wait(POLLIN)) {
      const ssize_t size = ::recv(inner_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
      if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (size < 0) base::throw_errno("read input");
      if (is_over()) return;
      if (size == 0) {
        program_->close_input();
        return;
      }
      program_->send(std::string_view(piece).substr(0, static_cast<size_t>(size)));
    }
  } catch (const std::exception& error) {
    // A program that ended takes no input, and its end says more.
    if (becomes_over(kEndFollows)) return;
    fail(error);
    cancel_->cancel();
  }
}

}  // namespace moorage::link
