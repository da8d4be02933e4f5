#include "warden/network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>

#include "base/error.h"

namespace moorage::warden {
namespace {

using base::LineMessage;

constexpr int kBacklog = 128;

struct Place {
  const char* address;
  uint16_t port;
};

// Empty, with errno, if it cannot be bound.
Fd bound_socket(int type, const Place& place) {
  Fd socket(::socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return socket;
  const int on = 1;
  // Otherwise connections of a former egress, in TIME_WAIT, would hold the place.
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(place.port);
  ::inet_pton(AF_INET, place.address, &address.sin_addr);
  const bool bound =
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (!bound || (type == SOCK_STREAM && ::listen(socket.get(), kBacklog) != 0)) return Fd();
  return socket;
}

bool is_line(const Fd& socket) {
  int domain = 0;
  int type = 0;
  socklen_t size = sizeof domain;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
         ::getsockopt(socket.get(), SOL_SOCKET, SO_TYPE, &type, &size) == 0 && domain == AF_UNIX &&
         type == SOCK_SEQPACKET;
}

}  // namespace

void Network::set_line(Fd line) {
  if (!is_line(line))
    throw Error(Code::invalid_argument, "the descriptor is not a line for the network");
  watch_.reset();
  line_ = std::move(line);
  const int flags = ::fcntl(line_.get(), F_GETFL);
  if (flags < 0 || ::fcntl(line_.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    base::throw_errno("set a descriptor's flags");
  watch_ = std::make_unique<Watch>(loop_, line_.get(), EPOLLIN, [this](uint32_t) { on_events(); });
  hand_over_resolver();
}

void Network::hand_over_resolver() {
  const Place place{base::kResolverInside, base::kResolverPort};
  if (!udp_) udp_ = bound_socket(SOCK_DGRAM, place);
  if (!tcp_) tcp_ = bound_socket(SOCK_STREAM, place);
  const Fd diag(::socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!udp_ || !tcp_ || !diag) {
    end_line();
    base::throw_errno("listen at the resolver's address");
  }
  const std::array fds{udp_.get(), tcp_.get(), diag.get()};
  send(std::string(base::kLineDns), fds);
}

// Answers only while there is room for the answer.
void Network::on_events() {
  while (line_) {
    pollfd room{line_.get(), POLLOUT, 0};
    if (::poll(&room, 1, 0) == 0) return watch_->set_events(EPOLLOUT);
    watch_->set_events(EPOLLIN);
    if (!answer_one()) return;
  }
}

bool Network::answer_one() {
  std::array<char, base::kMaxLineMessage> bytes;
  const ssize_t size = ::recv(line_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  const auto request =
      base::read_line_message({bytes.data(), static_cast<size_t>(size > 0 ? size : 0)});
  if (!request || request->kind != LineMessage::Kind::listen) {
    end_line();
    return false;
  }
  answer(*request);
  return true;
}

void Network::answer(const base::LineMessage& request) {
  LineMessage message = request;
  const Fd listener = bound_socket(SOCK_STREAM, {request.address.c_str(), request.port});
  if (!listener) {
    message.kind = LineMessage::Kind::refused;
    message.error_number = errno;
    send(base::line_text(message), {});
    return;
  }
  message.kind = LineMessage::Kind::listening;
  const std::array fds{listener.get()};
  send(base::line_text(message), fds);
}

void Network::send(const std::string& text, std::span<const int> fds) {
  try {
    base::send_with_fds(line_.get(), text, fds);
  } catch (const Error&) {
    end_line();  // the other side is gone
  }
}

void Network::end_line() {
  watch_.reset();
  line_.reset();
}

}  // namespace moorage::warden
