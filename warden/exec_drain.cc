// The end of a command's output (exec.h). Its main process is gone. Whatever it left in the pipes
// is always read; if no other process holds them, that is all. Other holders may have a last word
// (`tee`, the end of a pipeline), or run for hours. So wait until no leftover process is active,
// then until kQuietMs pass without a sign; kBusyNs and kLongestMs limit the wait for those that
// never rest. The command's caller waits too, so all of this is short; later output is not lost
// (warden/output/late_output.h).
#include <errno.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "warden/exec.h"

namespace moorage::warden {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kQuietMs = 20;
constexpr int64_t kBusyNs = 50'000'000;  // of processor time
constexpr int64_t kLongestMs = 500;
// On a busy machine nothing may run, including us: as often as we ran, the others could.
constexpr int kLeastChecks = 12;
constexpr int64_t kLongestOfAllMs = 2'000;
constexpr milliseconds kBetweenChecks{4};
// A terminal's content beyond FIONREAD's count (the kernel's flip buffers).
constexpr size_t kTerminalHolds = 128 << 10;

}  // namespace

void Exec::begin_drain() {
  drain_began_ms_ = last_sign_ms_ = monotonic_ms();
  for (Output& output : outputs_) {
    int waiting = 0;
    if (!output.fd || ::ioctl(output.fd.get(), FIONREAD, &waiting) != 0) continue;
    // One more than available: the read that finds the end, or that no more is there yet.
    output.left = static_cast<size_t>(std::max(waiting, 0)) + 1;
    if (command_.terminal) output.left += kTerminalHolds;
  }
  drain();
}

void Exec::drain() {
  if (draining_now_ || end_given_) return;  // called back through pump(): the loop below continues
  draining_now_ = true;
  bool open = false;
  for (Output& output : outputs_) {
    while (output.left > 0 && output.fd && sink_->ready()) pump(output);
    open = open || output.fd;
    if (output.left > 0 && output.fd) {
      draining_now_ = false;
      return;  // on_ready continues here
    }
  }
  draining_now_ = false;
  if (!open) return finish();
  if (left_running_) return;
  left_running_.emplace(subreaper_ != 0 ? subreaper_ : ::getpid(), started_boot_ns_);
  check_rest();
}

void Exec::check_rest() {
  const int64_t began_ms = monotonic_ms();
  const bool rests = !left_running_->measure() && sink_->ready();
  const int64_t now_ms = monotonic_ms();
  if (!rests) last_sign_ms_ = now_ms;  // now: a check may take long if we had to wait ourselves
  const bool quiet = now_ms - last_sign_ms_ >= kQuietMs;
  const int64_t took_ms = now_ms - drain_began_ms_;
  const bool long_enough = left_running_->spent_ns() >= kBusyNs || took_ms >= kLongestMs;
  const bool busy = (++checks_ >= kLeastChecks && long_enough) || took_ms >= kLongestOfAllMs;
  if ((quiet || busy) && sink_->ready()) {
    // A terminal's bytes arrive through a kernel worker, or when we read.
    for (Output& output : outputs_) {
      if (output.fd && sink_->ready()) pump(output);
    }
    if (state_ == State::over) return;  // that was the end
    if (busy || last_sign_ms_ < now_ms) return finish();
  }
  // The longer a check takes, the less often it runs.
  const milliseconds pause = std::max(kBetweenChecks, milliseconds(4 * (now_ms - began_ms)));
  next_check_.start(pause, [this] { check_rest(); });
}

// The exec is over. A sink without late output leaves the pipes to be drained.
void Exec::leave_late_output() {
  LateOutput::Source source;
  bool open = false;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    outputs_[i].watch.reset();
    open = open || outputs_[i].fd;
    source.streams[i] = {std::move(outputs_[i].fd), outputs_[i].kind};
  }
  source.session = std::move(spawned_.session);
  if (!open) return;
  if (sink_->keeps_late()) source.sink = std::move(sink_);
  late_.take(std::move(source));
}

}  // namespace moorage::warden
