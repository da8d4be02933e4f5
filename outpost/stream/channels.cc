#include "outpost/stream/channels.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"

namespace moorage::outpost {
namespace {

constexpr int kPipeBytes = 1 << 20;

}  // namespace

Answer::Answer(Wire wire, std::string text) : wire_(wire), text_(std::move(text)) { writable(); }
Answer::Answer(Wire wire, Fd file) : wire_(wire), file_(std::move(file)) { writable(); }

void Answer::writable() {
  while (!over_) {
    const size_t room = wire_.room();
    if (file_ && room > 0) {
      try {
        text_ = base::read_at(file_.get(), room, sent_);
      } catch (const Error& error) {
        over_ = true;
        return wire_.reset(error);
      }
    }
    const std::string_view rest =
        file_ ? std::string_view(text_) : std::string_view(text_).substr(sent_);
    if (room == 0 && (file_ || !rest.empty())) return;
    if (rest.empty()) {
      over_ = true;
      return wire_.end();
    }
    const std::string_view piece = rest.substr(0, room);
    wire_.send(piece);
    sent_ += piece.size();
  }
}

void Later::data(std::string_view bytes) { wire_.consumed(bytes.size()); }

void Later::writable() {
  if (answer_) answer_->writable();
}

Upload::Upload(base::Loop& loop, Wire wire, Fd target, bool pipe)
    : Later(wire), loop_(loop), target_(std::move(target)), pipe_(pipe) {
  wire_.grant(base::kMuxPackWindow - base::kMuxWindow);
  if (!pipe_) return;
  base::check(fcntl(target_.get(), F_SETFL, O_NONBLOCK), "set up a pipe");
  fcntl(target_.get(), F_SETPIPE_SZ, kPipeBytes);
  watch_ =
      std::make_unique<base::Watch>(loop_, target_.get(), 0, [this](uint32_t) { write_some(); });
}

void Upload::data(std::string_view bytes) {
  if (!target_) return wire_.consumed(bytes.size());
  if (!waiting_.empty()) {
    waiting_ += bytes;
    return;
  }
  const ssize_t count = write(target_.get(), bytes.data(), bytes.size());
  const size_t written = static_cast<size_t>(std::max<ssize_t>(count, 0));
  wire_.consumed(written);
  if (written == bytes.size()) return;
  waiting_ = bytes.substr(written);
  write_some();
}

void Upload::ended() {
  ended_ = true;
  if (waiting_.empty()) finish();
}

void Upload::discard() {
  watch_.reset();
  target_.reset();
  wire_.consumed(waiting_.size());
  waiting_.clear();
}

void Upload::write_some() {
  size_t written = 0;
  while (written < waiting_.size()) {
    const ssize_t count =
        write(target_.get(), waiting_.data() + written, waiting_.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0 && pipe_) return discard();  // its reader says why
    if (count < 0) {
      const int error_number = errno;
      discard();
      complete_ = {};
      try {
        base::throw_errno("store a pack", error_number);
      } catch (const Error& error) {
        return fail(error);
      }
    }
    written += static_cast<size_t>(count);
  }
  waiting_.erase(0, written);
  wire_.consumed(written);
  if (watch_) watch_->set_events(waiting_.empty() ? 0u : uint32_t{EPOLLOUT});
  if (ended_ && waiting_.empty()) finish();
}

void Upload::finish() {
  watch_.reset();
  if (const auto complete = std::move(complete_)) complete(std::move(target_));
  target_.reset();
}

Relay::Relay(base::Loop& loop, Wire wire, const std::string& socket_path)
    : wire_(wire), socket_(base::connect_unix(socket_path, 1000)) {
  base::check(fcntl(socket_.get(), F_SETFL, O_NONBLOCK), "set up a socket");
  watch_ = std::make_unique<base::Watch>(loop, socket_.get(), EPOLLIN,
                                         [this](uint32_t events) { on_socket(events); });
}

void Relay::data(std::string_view bytes) {
  if (over_) return wire_.consumed(bytes.size());
  waiting_ += bytes;
  write_some();
}

void Relay::ended() {
  link_ended_ = true;
  if (!over_ && waiting_.empty()) shutdown(socket_.get(), SHUT_WR);
}

void Relay::on_socket(uint32_t events) {
  if (over_) return;
  if (events & EPOLLOUT) write_some();
  if (over_ || peer_ended_ || (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  const size_t room = std::min(wire_.room(), base::io_buffer().size());
  if (room == 0) return set_events();
  const ssize_t count = recv(socket_.get(), base::io_buffer().data(), room, 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count < 0) return fail("the warden's connection was reset");
  if (count == 0) {
    peer_ended_ = true;
    wire_.end();
  } else {
    wire_.send({base::io_buffer().data(), static_cast<size_t>(count)});
  }
  set_events();
}

void Relay::write_some() {
  size_t written = 0;
  while (written < waiting_.size()) {
    const ssize_t count =
        send(socket_.get(), waiting_.data() + written, waiting_.size() - written, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    // The warden may have answered and closed; its answer is still to be read.
    if (count < 0)
      written = waiting_.size();
    else
      written += static_cast<size_t>(count);
  }
  waiting_.erase(0, written);
  wire_.consumed(written);
  if (link_ended_ && waiting_.empty()) shutdown(socket_.get(), SHUT_WR);
  set_events();
}

void Relay::set_events() {
  if (over_) return;
  uint32_t events = 0;
  if (!peer_ended_ && wire_.room() > 0) events |= EPOLLIN;
  if (!waiting_.empty()) events |= EPOLLOUT;
  watch_->set_events(events);
}

void Relay::fail(const std::string& what) {
  over_ = true;
  watch_->set_events(0);
  wire_.reset(Error(Code::unavailable, what));
}

}  // namespace moorage::outpost
