#include "link/retry.h"

#include <time.h>

#include <algorithm>
#include <charconv>
#include <random>
#include <string>
#include <thread>

namespace moorage::link {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongestPause{15'000};
constexpr int64_t kLongestRetryAfterS = 3600;

}  // namespace

milliseconds Retry::next(std::optional<milliseconds> retry_after) {
  static thread_local std::minstd_rand random{std::random_device{}()};
  const milliseconds pause = pause_;
  pause_ = std::min(pause_ * 2, kLongestPause);
  // Spread, so that many links do not return at the same moment.
  const auto spread = milliseconds(random() % (pause.count() / 2 + 1));
  return std::max(pause, retry_after.value_or(milliseconds(0))) + spread;
}

void Retry::wait(const Error& failure, std::optional<milliseconds> retry_after) {
  const milliseconds pause = next(retry_after);
  if (Clock::now() + pause >= deadline_) {
    if (!retry_after) throw failure;
    throw Error(failure.code(),
                failure.message() + "; it asks to wait " +
                    std::to_string((retry_after->count() + 999) / 1000) + " s",
                failure.hint());
  }
  std::this_thread::sleep_for(pause);
}

bool worth_retrying(unsigned status) {
  return status == 408 || status == 425 || status == 429 || status == 500 ||
         (status >= 502 && status <= 504);
}

std::optional<milliseconds> parse_retry_after(std::string_view text, int64_t now) {
  int64_t seconds = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, seconds);
  if (error != std::errc() || stopped != end || seconds < 0) {
    tm date{};
    const std::string held(text);  // what strptime returns points into it
    const char* rest = strptime(held.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &date);
    if (!rest || *rest != '\0') return std::nullopt;
    seconds = std::max<int64_t>(0, timegm(&date) - now);
  }
  return milliseconds(std::min(seconds, kLongestRetryAfterS) * 1000);
}

}  // namespace moorage::link
