#include "link/stream.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

namespace moorage::link {
namespace {

using namespace std::chrono_literals;

constexpr int kReadsPerEvent = 16;  // then the other descriptors have their turn

}  // namespace

Stream::Stream(base::Loop& loop, std::unique_ptr<Run> run, Broken on_broken)
    : run_(std::move(run)),
      on_broken_(std::move(on_broken)),
      received_ms_(base::monotonic_ms()),
      watch_(loop, run_->stream(), EPOLLIN, [this](uint32_t events) { on_events(events); }),
      soon_(loop),
      later_(loop) {}

std::shared_ptr<ChannelUser> Stream::user(uint32_t channel) {
  auto found = users_.find(channel);
  return found == users_.end() ? nullptr : found->second.lock();
}

uint32_t Stream::open(const std::string& request, std::weak_ptr<ChannelUser> user) {
  if (broken_) throw Error(Code::unavailable, "the stream to the other machine ended");
  const uint32_t channel = mux_.open(request);
  users_[channel] = std::move(user);
  flush_soon();
  return channel;
}

size_t Stream::room(uint32_t channel) const {
  if (broken_ || full_) return 0;
  return mux_.room(channel);
}

void Stream::send(uint32_t channel, std::string_view bytes) {
  if (broken_) return;
  mux_.send(channel, bytes);
  flush_soon();
}

void Stream::end(uint32_t channel) {
  if (broken_) return;
  mux_.end(channel);
  if (!mux_.is_open(channel)) users_.erase(channel);  // the other side had ended it
  flush_soon();
}

void Stream::reset(uint32_t channel, const Error& reason) {
  users_.erase(channel);
  if (broken_) return;
  mux_.reset(channel, reason);
  flush_soon();
}

void Stream::consumed(uint32_t channel, size_t bytes) {
  if (broken_) return;
  mux_.consumed(channel, bytes);
  flush_soon();
}

void Stream::grant_pack(uint32_t channel) {
  if (broken_) return;
  mux_.grant(channel, base::kMuxPackWindow - base::kMuxWindow);
  flush_soon();
}

void Stream::on_events(uint32_t events) {
  if (broken_) return;
  if (events & EPOLLOUT) {
    flush();
    if (!broken_ && !full_) tell_room();
  }
  if (!broken_ && events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read();
}

void Stream::read() {
  const auto buffer = base::io_buffer();
  for (int i = 0; i < kReadsPerEvent && !broken_; ++i) {
    const ssize_t count = ::recv(run_->stream(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
      auto reason = run_->reason();
      return break_off(reason ? *reason
                              : Error(Code::unavailable, "the stream to the other machine ended"));
    }
    received_ms_ = base::monotonic_ms();
    std::string_view bytes(buffer.data(), static_cast<size_t>(count));
    try {
      while (!broken_) {
        auto frame = mux_.next(bytes);
        if (!frame) break;
        greeted_ = true;
        handle(*frame);
        require_reader();
      }
    } catch (const Error& error) {
      if (error.code() != Code::corrupted || greeted_) return break_off(error);
      return break_off(Error(Code::corrupted, "the other machine sent something else than a stream",
                             "a login there must not print anything when it runs a command"));
    }
    if (static_cast<size_t>(count) < buffer.size()) return;
  }
}

// Only frames that come in make the output grow beyond kMuxEnoughOutput.
void Stream::require_reader() const {
  if (mux_.output().size() <= base::kMuxMostOutput) return;
  throw Error(Code::unavailable, "the other machine sends, but does not read what it is sent");
}

void Stream::handle(const base::MuxFrame& frame) {
  const std::shared_ptr<ChannelUser> to = user(frame.channel);
  if (!to) {
    // Its user is gone: nothing of it is of interest any more.
    if (mux_.is_open(frame.channel))
      reset(frame.channel, Error(Code::conflict, "nobody waits for this answer"));
    return;
  }
  switch (frame.kind) {
    case base::MuxKind::data:
      to->on_data(frame.payload);
      break;
    case base::MuxKind::credit:
      to->on_room();
      break;
    case base::MuxKind::end:
      to->on_end();
      break;
    case base::MuxKind::reset: {
      users_.erase(frame.channel);
      const Error reason = base::mux_reset_reason(frame.payload);
      to->on_over(reason);
      return;
    }
    case base::MuxKind::open:
      return;  // the codec refuses it
  }
  if (!mux_.is_open(frame.channel)) users_.erase(frame.channel);
}

// What one round of the loop brings goes in one piece: a provider may carry each piece by a
// request.
void Stream::flush_soon() {
  if (mux_.output().size() >= base::kMuxEnoughOutput) return flush();
  if (!soon_.running()) soon_.start(0ms, [this] { flush(); });
}

void Stream::flush() {
  if (broken_) return;
  std::string& output = mux_.output();
  size_t done = 0;
  while (done < output.size()) {
    const ssize_t count = ::send(run_->stream(), output.data() + done, output.size() - done,
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;  // a broken stream is found by read(), which learns the reason
    done += static_cast<size_t>(count);
  }
  output.erase(0, done);
  full_ = output.size() >= base::kMuxEnoughOutput;
  watch_.set_events(output.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

void Stream::tell_room() {
  std::vector<std::shared_ptr<ChannelUser>> all;
  for (const auto& [channel, user] : users_) {
    if (auto held = user.lock()) all.push_back(std::move(held));
  }
  for (const auto& one : all) {
    if (broken_ || full_) return;
    one->on_room();
  }
}

void Stream::break_off(const Error& reason) {
  if (std::exchange(broken_, true)) return;
  watch_.set_events(0);
  const auto users = std::move(users_);
  users_.clear();
  for (const auto& [channel, weak] : users) {
    if (auto held = weak.lock()) held->on_over(reason);
  }
  // Not now: this runs inside of calls of the one that will destroy this object, and with it
  // everything that it holds.
  later_.start(0ms, [on_broken = std::move(on_broken_), reason] { on_broken(reason); });
}

}  // namespace moorage::link
