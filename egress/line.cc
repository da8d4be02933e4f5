#include "egress/line.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/error.h"
#include "base/log.h"
#include "base/wire/network_line.h"

namespace moorage::egress {
namespace {

using base::LineMessage;

constexpr size_t kMaxFdsInMessage = 8;

int option(const Fd& socket, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return getsockopt(socket.get(), SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

bool is_socket(const Fd& socket, int domain, int type, int protocol) {
  return option(socket, SO_DOMAIN) == domain && option(socket, SO_TYPE) == type &&
         option(socket, SO_PROTOCOL) == protocol;
}

bool is_bound_to(const Fd& socket, const std::string& address, uint16_t port) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  auto* generic = reinterpret_cast<sockaddr*>(&bound);
  if (getsockname(socket.get(), generic, &size) != 0 || bound.ss_family != AF_INET) return false;
  return base::address_of(*generic) == base::parse_address(address) &&
         reinterpret_cast<const sockaddr_in&>(bound).sin_port == htons(port);
}

bool is_listener(const Fd& socket, const std::string& address, uint16_t port) {
  return is_socket(socket, AF_INET, SOCK_STREAM, IPPROTO_TCP) &&
         option(socket, SO_ACCEPTCONN) == 1 && is_bound_to(socket, address, port);
}

bool is_resolver(const std::vector<Fd>& fds) {
  if (fds.size() != 2 && fds.size() != 3) return false;
  return is_socket(fds[0], AF_INET, SOCK_DGRAM, IPPROTO_UDP) &&
         is_bound_to(fds[0], base::kResolverInside, base::kResolverPort) &&
         is_listener(fds[1], base::kResolverInside, base::kResolverPort) &&
         (fds.size() == 2 || option(fds[2], SO_DOMAIN) == AF_NETLINK);
}

}  // namespace

Line::Line(base::Loop& loop, Fd socket, OnResolver on_resolver, OnEnd on_end)
    : socket_(std::move(socket)),
      on_resolver_(std::move(on_resolver)),
      on_end_(std::move(on_end)),
      watch_(loop, socket_.get(), EPOLLIN, [this](uint32_t events) { on_events(events); }) {}

void Line::listen(const base::IpAddress& address, uint16_t port, Done done) {
  requests_.push_back({address.str(), port, std::move(done)});
  send_some();
}

void Line::on_events(uint32_t events) {
  if ((events & EPOLLOUT) != 0) send_some();
  while (!ended_ && receive_one()) {
  }
}

void Line::send_some() {
  while (!ended_ && sent_ < requests_.size()) {
    const Request& request = requests_[sent_];
    const std::string text =
        base::line_text({LineMessage::Kind::listen, request.address, request.port, 0});
    if (send(socket_.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
      // Any other error shows when the socket is read.
      watch_.set_events(EPOLLIN | (errno == EAGAIN ? EPOLLOUT : 0U));
      return;
    }
    ++sent_;
  }
  if (!ended_) watch_.set_events(EPOLLIN);
}

bool Line::receive_one() {
  std::array<char, base::kMaxLineMessage> bytes;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxFdsInMessage)> control;
  iovec piece{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t size = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (size <= 0) {
    end();
    return false;
  }
  std::vector<Fd> fds = base::take_fds(message);
  take({bytes.data(), static_cast<size_t>(size)}, std::move(fds));
  return !ended_;
}

void Line::take(std::string_view text, std::vector<Fd> fds) {
  if (text == base::kLineDns && is_resolver(fds)) {
    fds.resize(base::kMaxResolverSockets);
    return on_resolver_({std::move(fds[0]), std::move(fds[1]), std::move(fds[2])});
  }
  const auto message = base::read_line_message(text);
  if (!message || sent_ == 0 || message->kind == LineMessage::Kind::listen ||
      message->address != requests_.front().address || message->port != requests_.front().port) {
    base::log(base::LogLevel::warning, "egress.line_broken", {{"message", std::string(text)}});
    return end();
  }
  const Request request = std::move(requests_.front());
  requests_.pop_front();
  --sent_;
  const bool listens = message->kind == LineMessage::Kind::listening && fds.size() == 1 &&
                       is_listener(fds[0], request.address, request.port);
  request.done(listens ? std::move(fds[0]) : Fd());
}

void Line::end() {
  ended_ = true;
  watch_.set_events(0);
  on_end_();
}

}  // namespace moorage::egress
