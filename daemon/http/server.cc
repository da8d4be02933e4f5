#include "daemon/http/server.h"

#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <map>
#include <set>

#include "base/log.h"
#include "daemon/http/connection.h"
#include "daemon/http/http_text.h"

namespace moorage::daemon {
namespace {

using std::chrono::milliseconds;
using Acceptor = asio::local::stream_protocol::acceptor;

constexpr milliseconds kAcceptPause{100};  // after EMFILE and the like
constexpr milliseconds kDrainLook{20};

// The credentials at connect time: a program that changes its user later keeps its first identity.
workspace::Caller peer_of(int socket) {
  const auto peer = base::peer_credentials(socket);
  workspace::Caller caller;
  caller.uid = peer.uid;
  caller.gids = base::peer_groups(socket);
  caller.gids.push_back(peer.gid);
  return caller;
}

}  // namespace

struct Server::Impl {
  explicit Impl(const Parts& given) : parts(given) {}

  Parts parts;
  asio::io_context loop{1};
  Acceptor acceptor{loop};
  std::set<std::shared_ptr<Connection>> connections;
  std::map<uint32_t, size_t> by_uid;
  bool stopping = false;
  bool drained = true;

  Awaitable<void> accept_loop();
  void admit(Stream::socket_type socket);
  void turn_away(Stream::socket_type socket);
  void forget(const std::shared_ptr<Connection>& connection);
  Awaitable<void> repeat(milliseconds pause, std::function<void()> work);
  Awaitable<void> drain();
  void begin_stop();
};

Server::Server(const Parts& parts) : impl_(std::make_unique<Impl>(parts)) {}
Server::~Server() = default;

void Server::listen(base::Fd listener) {
  impl_->acceptor.assign(asio::local::stream_protocol(), listener.release());
  asio::co_spawn(impl_->loop, impl_->accept_loop(), asio::detached);
}

Awaitable<void> Server::Impl::accept_loop() {
  asio::steady_timer pause(loop);
  while (!stopping) {
    auto [error, socket] = co_await acceptor.async_accept(kAsTuple);
    if (stopping) co_return;
    if (!error) {
      admit(std::move(socket));
      continue;
    }
    base::log(base::LogLevel::warning, "http.accept", {{"error", error.message()}});
    pause.expires_after(kAcceptPause);
    co_await pause.async_wait(kAsTuple);
  }
}

void Server::Impl::admit(Stream::socket_type socket) {
  const workspace::Caller caller = peer_of(socket.native_handle());
  const auto& limits = parts.limits;
  const bool user_full = !caller.root() && by_uid[caller.uid] >= limits.max_connections_per_uid;
  if (connections.size() >= limits.max_connections || user_full)
    return turn_away(std::move(socket));
  auto connection = std::make_shared<Connection>(std::move(socket), caller, parts);
  connections.insert(connection);
  parts.router.traffic().connections = connections.size();
  by_uid[caller.uid] += 1;
  const auto over = [this, connection](const std::exception_ptr&) { forget(connection); };
  asio::co_spawn(loop, connection->run(), over);
}

// The answer fits the socket's buffer, so sending never blocks the loop.
void Server::Impl::turn_away(Stream::socket_type socket) {
  parts.router.answers(nullptr).add(429);
  const base::Error full(base::Code::resource_exhausted, "too many connections",
                         "close some connections, or raise api.max_connections");
  const std::string body = error_json(full);
  const Head head{.status = 429, .content_type = kJsonType, .length = body.size(), .close = true};
  const std::string answer = response_head(head) + body;
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  socket.send(asio::buffer(answer), 0, ignored);
}

void Server::Impl::forget(const std::shared_ptr<Connection>& connection) {
  const auto count = by_uid.find(connection->uid());
  if (--count->second == 0) by_uid.erase(count);
  connections.erase(connection);
  parts.router.traffic().connections = connections.size();
}

void Server::every(milliseconds pause, std::function<void()> work) {
  asio::co_spawn(impl_->loop, impl_->repeat(pause, std::move(work)), asio::detached);
}

Awaitable<void> Server::Impl::repeat(milliseconds pause, std::function<void()> work) {
  asio::steady_timer timer(loop);
  const base::Share ours;
  const auto guarded = [&work] {
    try {
      work();
    } catch (const std::exception& error) {
      base::log(base::LogLevel::error, "daemon.periodic", {{"error", error.what()}});
    }
    return true;
  };
  while (!stopping) {
    timer.expires_after(pause);
    co_await timer.async_wait(kAsTuple);
    if (!stopping) co_await on_lane(parts.worker_pools, Lane::upkeep, ours, guarded);
  }
}

bool Server::run(bool until_signalled) {
  asio::signal_set signals(impl_->loop);
  if (until_signalled) {
    signals.add(SIGTERM);
    signals.add(SIGINT);
    signals.async_wait([this](const boost::system::error_code& error, int number) {
      if (error) return;
      base::log(base::LogLevel::info, "daemon.stopping", {{"signal", number}});
      impl_->begin_stop();
    });
  }
  const auto work = asio::make_work_guard(impl_->loop);
  impl_->loop.run();
  return impl_->drained;
}

void Server::stop() {
  asio::post(impl_->loop, [this] { impl_->begin_stop(); });
}

void Server::Impl::begin_stop() {
  if (std::exchange(stopping, true)) return;
  boost::system::error_code ignored;
  acceptor.close(ignored);
  const auto now = connections;  // stopping one may remove it from the set
  for (const auto& connection : now) connection->stop();
  asio::co_spawn(loop, drain(), asio::detached);
}

// Polls, because requests, streams and verbs without a client all end in different ways.
Awaitable<void> Server::Impl::drain() {
  asio::steady_timer timer(loop);
  const auto deadline = std::chrono::steady_clock::now() + parts.limits.drain;
  for (;;) {
    drained = connections.empty() && parts.worker_pools.busy() == 0;
    if (drained || std::chrono::steady_clock::now() >= deadline) break;
    timer.expires_after(kDrainLook);
    co_await timer.async_wait(kAsTuple);
  }
  loop.stop();
}

}  // namespace moorage::daemon
