#include "warden/shutdown.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "warden/process_tree.h"

namespace moorage::warden {
namespace {

constexpr auto kStep = std::chrono::milliseconds(10);
// After SIGKILL: for processes blocked in the kernel, and for journals on a full disk.
constexpr int64_t kPatienceMs = 3000;

void signal_everybody(int signal) {
  if (::getpid() == 1) {
    ::kill(-1, signal);
    return;
  }
  for (pid_t pid : descendants(::getpid())) ::kill(pid, signal);
}

}  // namespace

void Shutdown::begin(std::chrono::milliseconds grace, const std::shared_ptr<Connection>& asked) {
  if (asked) asked_.push_back(asked);
  const int64_t kill_at_ms = monotonic_ms() + grace.count();
  if (step_.running()) {
    kill_at_ms_ = std::min(kill_at_ms_, kill_at_ms);
    return;
  }
  kill_at_ms_ = kill_at_ms;
  signal_everybody(SIGTERM);
  // A stopped process receives SIGTERM only after it continues.
  signal_everybody(SIGCONT);
  step();
}

void Shutdown::step() {
  const int64_t now = monotonic_ms();
  if (now >= kill_at_ms_ && !checks_.childless()) signal_everybody(SIGKILL);
  const bool done = checks_.childless() && checks_.recorded();
  if (!done && now < kill_at_ms_ + kPatienceMs) {
    step_.start(kStep, [this] { step(); });
    return;
  }
  for (const auto& weak : asked_) {
    if (auto connection = weak.lock()) connection->respond(200, "application/json", "{}");
  }
  loop_.stop();
}

}  // namespace moorage::warden
