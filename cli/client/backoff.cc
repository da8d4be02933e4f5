#include "cli/client/backoff.h"

#include <poll.h>

#include <algorithm>
#include <cstdlib>

namespace moorage::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kFirstPause{20};
constexpr milliseconds kLongestPause{1000};

}  // namespace

Backoff::Backoff(milliseconds patience) : patience_(patience), pause_(kFirstPause) {}

bool Backoff::wait(int wake_fd) {
  if (began_ == steady_clock::time_point{}) began_ = steady_clock::now();
  if (waited() >= patience_) return false;
  pollfd wake{wake_fd, POLLIN, 0};
  const int woken = ::poll(&wake, 1, static_cast<int>(pause_.count()));  // skips a negative fd
  pause_ = std::min(pause_ * 2, kLongestPause);
  return woken <= 0;
}

void Backoff::reset() {
  began_ = {};
  pause_ = kFirstPause;
}

milliseconds Backoff::waited() const {
  if (began_ == steady_clock::time_point{}) return milliseconds{0};
  return std::chrono::duration_cast<milliseconds>(steady_clock::now() - began_);
}

milliseconds reconnect_patience() {
  constexpr int kDefaultSeconds = 600;
  const char* text = std::getenv("MOORAGE_RECONNECT_S");
  const int seconds = text == nullptr ? kDefaultSeconds : std::atoi(text);
  return std::chrono::seconds(seconds > 0 ? seconds : kDefaultSeconds);
}

}  // namespace moorage::cli
