#include "warden/io/server.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <string_view>

namespace moorage::warden {
namespace {

constexpr auto kPause = std::chrono::milliseconds(100);
constexpr std::string_view kBusy =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 64\r\n"
    "Connection: close\r\n\r\n"
    "{\"code\":\"unavailable\",\"message\":\"all 64 connections are in use\"}";

bool is_exhaustion(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

}  // namespace

Server::Server(Loop& loop, Fd listener, Connection::Handler handler)
    : loop_(loop),
      listener_(std::move(listener)),
      handler_(std::move(handler)),
      pause_(loop),
      watch_(loop, listener_.get(), EPOLLIN, [this](uint32_t) { accept_all(); }) {}

bool Server::make_room() {
  if (connections_.size() < kMaxConnections) return true;
  auto idle = std::find_if(connections_.begin(), connections_.end(),
                           [](const auto& connection) { return connection->idle(); });
  if (idle == connections_.end()) return false;
  auto connection = *idle;
  connection->close();
  return true;
}

void Server::accept_all() {
  for (;;) {
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && !is_exhaustion(errno)) return;
    if (!socket) {
      watch_.set_events(0);
      return pause_.start(kPause, [this] { watch_.set_events(EPOLLIN); });
    }
    if (!make_room()) {
      ::send(socket.get(), kBusy.data(), kBusy.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      continue;
    }
    auto connection =
        std::make_shared<Connection>(loop_, std::move(socket), handler_, [this](Connection* gone) {
          std::erase_if(connections_, [gone](const auto& c) { return c.get() == gone; });
        });
    connections_.push_back(connection);
    connection->start();
  }
}

}  // namespace moorage::warden
