#include "egress/dialer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace moorage::egress {
namespace {

constexpr size_t kMaxProxyAnswer = 16 << 10;
constexpr int kProbeAfterS = 60;  // of silence: finds a server that is gone

void set_option(const Fd& socket, int level, int name, int value) {
  base::check(setsockopt(socket.get(), level, name, &value, sizeof value), "set a socket option");
}

Fd make_socket(const base::IpAddress& address) {
  Fd made(base::check_allowance(
      ::socket(address.v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
      "create a socket", "the limit of open files"));
  set_option(made, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(made, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(made, IPPROTO_TCP, TCP_KEEPIDLE, kProbeAfterS);
  set_option(made, IPPROTO_TCP, TCP_KEEPINTVL, kProbeAfterS);
  set_option(made, IPPROTO_TCP, TCP_KEEPCNT, 5);
  return made;
}

}  // namespace

Dialer::Dialer(base::Loop& loop, DialTarget target, Done done)
    : loop_(loop), target_(std::move(target)), done_(std::move(done)), timer_(loop) {
  timer_.start(std::chrono::milliseconds(0), [this] { try_next(); });
}

Dialer::~Dialer() = default;

void Dialer::finish(Dialed dialed) {
  timer_.stop();
  watch_.reset();
  const Done done = std::move(done_);
  done(std::move(dialed));
}

void Dialer::give_up_on_this(const std::string& why) {
  error_ = why;
  watch_.reset();
  socket_.reset();
  try_next();
}

void Dialer::try_next() {
  if (next_ == target_.addresses.size()) return finish({Fd(), {}, error_});
  const base::IpAddress address = target_.addresses[next_++];
  const std::string where = address.str() + " port " + std::to_string(target_.port);
  try {
    socket_ = make_socket(address);
  } catch (const Error& error) {
    return finish({Fd(), {}, error.message()});
  }
  sockaddr_storage to;
  const socklen_t size = address.to_socket(target_.port, to);
  if (connect(socket_.get(), reinterpret_cast<const sockaddr*>(&to), size) != 0 &&
      errno != EINPROGRESS) {
    return give_up_on_this(where + ": " + std::strerror(errno));
  }
  watch_ = std::make_unique<base::Watch>(loop_, socket_.get(), EPOLLOUT,
                                         [this](uint32_t events) { on_connected(events); });
  timer_.start(kPatienceEach, [this, where] { give_up_on_this(where + ": no answer"); });
}

void Dialer::on_connected(uint32_t) {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) {
    return give_up_on_this(target_.addresses[next_ - 1].str() + " port " +
                           std::to_string(target_.port) + ": " + std::strerror(error));
  }
  if (!target_.connect_to.empty()) return ask_proxy();
  finish({std::move(socket_), {}, {}});
}

void Dialer::ask_proxy() {
  std::string request =
      "CONNECT " + target_.connect_to + " HTTP/1.1\r\nHost: " + target_.connect_to + "\r\n";
  if (!target_.authorization.empty())
    request += "Proxy-Authorization: " + target_.authorization + "\r\n";
  request += "\r\n";
  // The socket's buffer is empty, and larger than any request.
  const ssize_t sent = send(socket_.get(), request.data(), request.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(request.size()))
    return give_up_on_this("the proxy did not take the request");
  answer_.clear();
  timer_.start(kPatienceProxy, [this] { give_up_on_this("the proxy did not answer"); });
  watch_.reset();
  watch_ = std::make_unique<base::Watch>(loop_, socket_.get(), EPOLLIN,
                                         [this](uint32_t) { read_proxy(); });
}

void Dialer::read_proxy() {
  char bytes[4096];
  const ssize_t size = recv(socket_.get(), bytes, sizeof bytes, 0);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return give_up_on_this("the proxy closed the connection");
  answer_.append(bytes, static_cast<size_t>(size));
  const size_t end = answer_.find("\r\n\r\n");
  if (end == std::string::npos) {
    if (answer_.size() > kMaxProxyAnswer) give_up_on_this("the proxy's answer is too long");
    return;
  }
  const std::string status = answer_.substr(0, answer_.find("\r\n"));
  if (!status.starts_with("HTTP/1.") ||
      status.substr(std::min<size_t>(8, status.size()), 2) != " 2")
    return give_up_on_this("the proxy refused: " + status.substr(0, 100));
  finish({std::move(socket_), answer_.substr(end + 4), {}});
}

}  // namespace moorage::egress
