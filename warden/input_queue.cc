#include "warden/input_queue.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"

namespace moorage::warden {
namespace {

// A pipe breaks shortly before its reader can be reaped; within this time "closed" may become
// "over".
constexpr auto kVerdictDelay = std::chrono::milliseconds(50);
constexpr char kEndOfTransmission = 4;
constexpr int kMoreEnds = 4;
constexpr auto kFirstEndPause = std::chrono::milliseconds(100);  // doubles
constexpr auto kFirstCheck = std::chrono::milliseconds(1);
constexpr auto kLongestCheck = std::chrono::milliseconds(100);
constexpr size_t kCompactBytes = 256 << 10;

}  // namespace

InputQueue::InputQueue(Loop& loop, Fd write_end, bool terminal)
    : loop_(loop), fd_(std::move(write_end)), verdict_(loop), closer_(loop), terminal_(terminal) {
  watch_ = std::make_unique<Watch>(loop_, fd_.get(), 0, [this](uint32_t) { write_some(); });
}

void InputQueue::offer(std::optional<uint64_t> offset, std::string_view bytes, Reply reply) {
  const uint64_t at = offset.value_or(received_);
  if (at > received_) {
    throw Error(Code::conflict, "gap in input: " + std::to_string(received_) +
                                    " bytes received, this piece begins at " + std::to_string(at));
  }
  const uint64_t until = at + bytes.size();
  bytes.remove_prefix(std::min<uint64_t>(bytes.size(), received_ - at));
  const bool broken = fate_ != InputFate::taken && !verdict_.running();
  if (broken) return reply(until <= written_ ? InputFate::taken : fate_, written_, read_bytes());
  if (closing_ && !bytes.empty()) return reply(InputFate::closed, written_, read_bytes());
  if (bytes.size() > kMaxInputBytes || bytes_.size() - head_ > kMaxInputBytes) {
    throw Error(Code::resource_exhausted, "more than 1 MiB of input is waiting");
  }
  if (terminal_ && !bytes.empty()) closer_.stop();
  bytes_ += bytes;
  received_ += bytes.size();
  waiters_.push_back({until, std::move(reply)});
  write_some();
}

void InputQueue::close_when_written() {
  if (terminal_ && fd_) {
    bytes_ += kEndOfTransmission;
    ends_left_ = kMoreEnds;
    check_pause_ = kFirstEndPause;
    closer_.start(check_pause_, [this] { repeat_end(); });
  } else {
    closing_ = true;
  }
  write_some();
}

void InputQueue::repeat_end() {
  if (!fd_ || ends_left_ == 0) return;
  check_pause_ *= 2;
  closer_.start(check_pause_, [this] { repeat_end(); });
  if (!bytes_.empty()) return;
  --ends_left_;
  bytes_ += kEndOfTransmission;
  write_some();
}

void InputQueue::command_ended() { shut(InputFate::over); }

void InputQueue::write_some() {
  while (fd_ && head_ < bytes_.size()) {
    ssize_t count = ::write(fd_.get(), bytes_.data() + head_, bytes_.size() - head_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) {
      drop_pipe();
      fate_ = InputFate::closed;
      verdict_.start(kVerdictDelay, [this] { shut(InputFate::closed); });
      return;
    }
    head_ += static_cast<size_t>(count);
    // The ^D from close_when_written does not count as the sender's byte.
    written_ = std::min(received_, written_ + static_cast<uint64_t>(count));
  }
  if (head_ == bytes_.size()) {
    std::string().swap(bytes_);
    head_ = 0;
  } else if (head_ > kCompactBytes) {
    bytes_.erase(0, head_);
    head_ = 0;
  }
  if (watch_) watch_->set_events(bytes_.empty() ? 0u : uint32_t{EPOLLOUT});
  if (fate_ == InputFate::taken) answer(InputFate::taken);
  if (closing_ && bytes_.empty() && fd_) close_when_read();
}

uint64_t InputQueue::unread() const {
  int waiting = 0;
  if (terminal_ || !fd_ || ::ioctl(fd_.get(), FIONREAD, &waiting) != 0) return 0;
  return static_cast<uint64_t>(std::max(waiting, 0));
}

uint64_t InputQueue::read_bytes() const { return written_ - std::min(written_, left_ + unread()); }

void InputQueue::drop_pipe() {
  left_ += unread();
  closer_.stop();
  watch_.reset();
  fd_.reset();
}

// No event says that a pipe is empty. A command that reads finds the end within a millisecond; for
// one that does not, the checks become rare.
void InputQueue::close_when_read() {
  const uint64_t now = unread();
  pollfd readers{fd_.get(), 0, 0};
  const bool gone = ::poll(&readers, 1, 0) == 1 && (readers.revents & POLLERR) != 0;
  if (now == 0 || gone) return drop_pipe();
  check_pause_ = now == last_unread_ ? std::min(check_pause_ * 2, kLongestCheck) : kFirstCheck;
  last_unread_ = now;
  closer_.start(check_pause_, [this] { close_when_read(); });
}

void InputQueue::answer(InputFate fate) {
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    if (fate == InputFate::taken && waiter->until > written_) {
      ++waiter;
      continue;
    }
    Reply reply = std::move(waiter->reply);
    waiter = waiters_.erase(waiter);
    reply(fate, written_, read_bytes());
  }
}

void InputQueue::shut(InputFate fate) {
  verdict_.stop();
  drop_pipe();
  fate_ = fate;
  std::string().swap(bytes_);
  head_ = 0;
  answer(fate);
}

}  // namespace moorage::warden
