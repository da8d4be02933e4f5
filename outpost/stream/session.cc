#include "outpost/stream/session.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>

namespace moorage::outpost {
namespace {

constexpr auto kCloseAfter = std::chrono::milliseconds(2000);
constexpr auto kNow = std::chrono::milliseconds(0);

}  // namespace

size_t Wire::room() const {
  if (session_->mux_.output().size() >= base::kMuxEnoughOutput) return 0;
  return std::min(session_->mux_.room(number_), base::kMuxMaxPayload);
}

void Wire::send(std::string_view bytes) const {
  session_->mux_.send(number_, bytes);
  session_->schedule();
}

void Wire::end() const {
  session_->mux_.end(number_);
  session_->schedule();
}

void Wire::reset(const Error& reason) const {
  session_->mux_.reset(number_, reason);
  session_->schedule();
}

void Wire::consumed(size_t bytes) const {
  session_->mux_.consumed(number_, bytes);
  session_->schedule();
}

void Wire::grant(uint32_t bytes) const {
  session_->mux_.grant(number_, bytes);
  session_->schedule();
}

Session::Session(base::Loop& loop, Fd socket, OpenChannel open, std::function<void()> over)
    : loop_(loop),
      socket_(std::move(socket)),
      open_(std::move(open)),
      over_(std::move(over)),
      later_(loop),
      deadline_(loop) {
  watch_ = std::make_unique<base::Watch>(loop_, socket_.get(), EPOLLIN,
                                         [this](uint32_t events) { on_socket(events); });
}

// Channels use the session until they are gone.
Session::~Session() {
  failed_ = true;
  channels_.clear();
}

void Session::on_socket(uint32_t events) {
  if (events & EPOLLOUT) write_some();
  if (!failed_ && (events & (EPOLLIN | EPOLLHUP | EPOLLERR))) read_some();
}

void Session::read_some() {
  const ssize_t count = recv(socket_.get(), received_.data(), received_.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return fail();
  std::string_view bytes(received_.data(), static_cast<size_t>(count));
  try {
    while (const auto frame = mux_.next(bytes)) {
      handle(*frame);
      if (mux_.output().size() > base::kMuxMostOutput) return fail();  // link does not read
    }
  } catch (const Error&) {
    return fail();
  }
  schedule();
}

void Session::handle(const base::MuxFrame& frame) {
  if (frame.kind == base::MuxKind::open) return open(frame);
  const auto found = channels_.find(frame.channel);
  if (found == channels_.end()) {
    // Answered already; what link still sends is dropped.
    if (frame.kind == base::MuxKind::data) mux_.consumed(frame.channel, frame.payload.size());
    return;
  }
  Channel& channel = *found->second;
  switch (frame.kind) {
    case base::MuxKind::data:
      return channel.data(frame.payload);
    case base::MuxKind::end:
      return channel.ended();
    case base::MuxKind::credit:
      return channel.writable();
    case base::MuxKind::open:
    case base::MuxKind::reset:
      return;  // a reset channel is swept
  }
}

void Session::open(const base::MuxFrame& frame) {
  if (closing_) return mux_.reset(frame.channel, Error(Code::unavailable, "the stream ends"));
  try {
    auto channel = open_(frame.payload, Wire(*this, frame.channel));
    if (channel) channels_.emplace(frame.channel, std::move(channel));
  } catch (const Error& error) {
    mux_.reset(frame.channel, error);
  } catch (const std::exception& error) {
    mux_.reset(frame.channel, Error(Code::invalid_argument, error.what()));
  }
}

void Session::schedule() {
  if (failed_ || later_.running()) return;
  later_.start(kNow, [this] {
    sweep();
    write_some();
  });
}

void Session::sweep() {
  for (auto next = channels_.begin(); next != channels_.end();) {
    next = mux_.is_open(next->first) ? std::next(next) : channels_.erase(next);
  }
}

void Session::write_some() {
  std::string& output = mux_.output();
  const bool was_full = output.size() >= base::kMuxEnoughOutput;
  size_t sent = 0;
  while (sent < output.size()) {
    const ssize_t count = ::send(socket_.get(), output.data() + sent, output.size() - sent,
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0) return fail();
    sent += static_cast<size_t>(count);
  }
  output.erase(0, sent);
  watch_->set_events(output.empty() ? uint32_t{EPOLLIN} : uint32_t{EPOLLIN | EPOLLOUT});
  if (was_full && output.size() < base::kMuxEnoughOutput) wake_channels();
  if (closing_ && output.empty()) fail();
}

// Each time another one is the first to get the room.
void Session::wake_channels() {
  std::vector<uint32_t> numbers;
  for (const auto& [number, channel] : channels_) numbers.push_back(number);
  const auto first = std::upper_bound(numbers.begin(), numbers.end(), wake_from_);
  std::rotate(numbers.begin(), first, numbers.end());
  for (const uint32_t number : numbers) {
    if (mux_.output().size() >= base::kMuxEnoughOutput) return;
    wake_from_ = number;
    if (const auto found = channels_.find(number); found != channels_.end())
      found->second->writable();
  }
}

void Session::close_soon() {
  closing_ = true;
  deadline_.start(kCloseAfter, [this] { fail(); });
  schedule();
}

void Session::fail() {
  if (failed_) return;
  failed_ = true;
  watch_->set_events(0);
  deadline_.stop();
  // In a round of its own: the caller may be one of the channels.
  later_.start(kNow, [over = over_] { over(); });
}

}  // namespace moorage::outpost
