#include "base/wire/bootstrap.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>

#include "base/error.h"
#include "base/os/event_loop.h"

namespace moorage::base {
namespace {

constexpr int64_t kPatienceMs = 20'000;
constexpr long kRetryNs = 5'000'000;
constexpr std::string_view kHello = "{\"version\":1}\n";

int socket_option(const Fd& socket, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  if (::getsockopt(socket.get(), SOL_SOCKET, option, &value, &size) != 0) return -1;
  return value;
}

Fd dial(const std::string& path, int64_t deadline_ms) {
  for (;;) {
    try {
      return connect_unix(path,
                          static_cast<int>(std::max<int64_t>(1, deadline_ms - monotonic_ms())));
    } catch (Error& error) {
      if (monotonic_ms() >= deadline_ms) throw error.add_context("bootstrap");
    }
    timespec pause{0, kRetryNs};
    ::nanosleep(&pause, nullptr);
  }
}

}  // namespace

void check_listener(const Fd& listener) {
  if (socket_option(listener, SO_ACCEPTCONN) != 1 ||
      socket_option(listener, SO_DOMAIN) != AF_UNIX) {
    throw Error(Code::invalid_argument, "the descriptor is not a listening unix socket");
  }
  int flags = ::fcntl(listener.get(), F_GETFL);
  if (flags < 0 || ::fcntl(listener.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    throw_errno("set a descriptor's flags");
}

Bootstrapped bootstrap(const std::string& path) {
  const int64_t deadline_ms = monotonic_ms() + kPatienceMs;
  Fd socket = dial(path, deadline_ms);
  send_with_fds(socket.get(), kHello, {});
  const int64_t left_ms = std::max<int64_t>(0, deadline_ms - monotonic_ms());
  if (!wait_readable(socket.get(), static_cast<int>(left_ms))) {
    throw Error(Code::deadline_exceeded, "bootstrap: no listener received in time");
  }
  Received received = receive_with_fds(socket.get(), 256, 4);
  if (received.fds.empty()) throw Error(Code::unavailable, "bootstrap: closed without a listener");
  check_listener(received.fds[0]);
  Bootstrapped result{std::move(received.fds[0]), {}};
  if (received.fds.size() > 1) result.network_line = std::move(received.fds[1]);
  return result;
}

}  // namespace moorage::base
