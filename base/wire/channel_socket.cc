#include "base/wire/channel_socket.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace moorage::base {
namespace {

// Its peer sees a reset instead of an end.
void abort_connection(Fd& socket) {
  const linger now{1, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  socket.reset();
}

// While it connects, shutdown(2) would give it up.
bool is_connected(const Fd& socket) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  return getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

}  // namespace

ChannelSocket::ChannelSocket(Loop& loop, Fd socket, std::unique_ptr<Channel> channel, Over over)
    : socket_(std::move(socket)), channel_(std::move(channel)), over_(std::move(over)) {
  watch_.emplace(loop, socket_.get(), EPOLLIN, [this](uint32_t events) { on_events(events); });
}

ChannelSocket::~ChannelSocket() {
  if (!over_) return;
  watch_.reset();
  if (channel_) channel_->reset(Error(Code::unavailable, "the connection was given up"));
  abort_connection(socket_);
}

void ChannelSocket::on_data(std::string_view bytes) {
  if (!over_ || write_ended_) return;
  waiting_ += bytes;
  write_some();
  settle();
}

void ChannelSocket::on_end() {
  if (!over_ || write_ended_) return;
  write_ended_ = true;
  write_some();
  settle();
}

void ChannelSocket::on_room() {
  if (over_) settle();
}

void ChannelSocket::on_gone() {
  if (!over_ || !channel_) return;
  channel_.reset();
  aborted_ = true;
  settle();
}

void ChannelSocket::on_events(uint32_t events) {
  if ((events & EPOLLOUT) != 0) write_some();
  const bool broken = (events & (EPOLLHUP | EPOLLERR)) != 0;
  if (!aborted_ && !read_ended_ && (broken || (events & EPOLLIN) != 0))
    read_some();
  else if (!aborted_ && broken && !shut_)
    fail(ECONNRESET);
  settle();
}

void ChannelSocket::read_some() {
  const size_t room = std::min(channel_->room(), io_buffer().size());
  if (room == 0) return;
  const ssize_t count = recv(socket_.get(), io_buffer().data(), room, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count < 0) return fail(errno);
  if (count > 0) return channel_->send({io_buffer().data(), static_cast<size_t>(count)});
  read_ended_ = true;
  channel_->end();
}

void ChannelSocket::write_some() {
  if (aborted_) return;
  size_t written = 0;
  while (written < waiting_.size()) {
    const ssize_t count = send(socket_.get(), waiting_.data() + written, waiting_.size() - written,
                               MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) return fail(errno);
    written += static_cast<size_t>(count);
  }
  waiting_.erase(0, written);
  if (channel_ && written > 0) channel_->consumed(written);
  if (!write_ended_ || !waiting_.empty() || shut_ || !is_connected(socket_)) return;
  shutdown(socket_.get(), SHUT_WR);
  shut_ = true;
}

void ChannelSocket::fail(int error_number) {
  aborted_ = true;
  if (!channel_) return;
  channel_->reset(error_number == ECONNREFUSED
                      ? Error(Code::not_found, "nobody listens for the connection")
                      : Error(Code::unavailable, "the connection was reset"));
  channel_.reset();
}

void ChannelSocket::settle() {
  if (read_ended_ && write_ended_) channel_.reset();
  if (!aborted_ && !(read_ended_ && shut_)) {
    uint32_t events = 0;
    if (!read_ended_ && channel_->room() > 0) events |= EPOLLIN;
    if (!waiting_.empty() || (write_ended_ && !shut_)) events |= EPOLLOUT;
    return watch_->set_events(events);
  }
  watch_.reset();
  if (aborted_) abort_connection(socket_);
  socket_.reset();
  if (const Over over = std::exchange(over_, nullptr)) over();
}

}  // namespace moorage::base
