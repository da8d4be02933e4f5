// Patience with a provider, the same for every driver: how long to wait before the next attempt, by
// its Retry-After or by doubling, with random spread, and never beyond the deadline.
//
//   for (Retry retry(deadline);;) {
//     Answer answer = send();
//     if (!worth_retrying(answer.status)) return answer;
//     retry.wait(Error(...), answer.retry_after);   // sleeps, or throws the error
//   }
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace moorage::link {

class Retry {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Retry(Clock::time_point deadline) : deadline_(deadline) {}

  // Sleeps before the next attempt. Throws `failure`, with what was awaited, if the next attempt
  // would begin after the deadline.
  void wait(const Error& failure, std::optional<std::chrono::milliseconds> retry_after = {});
  // The same without the sleep: how long to wait.
  std::chrono::milliseconds next(std::optional<std::chrono::milliseconds> retry_after = {});

 private:
  Clock::time_point deadline_;
  std::chrono::milliseconds pause_{100};
};

// Statuses of HTTP after which the same request may succeed: 408, 425, 429, 500, 502, 503, 504.
// For a request that creates something, only 429 and 503 say that nothing was created.
bool worth_retrying(unsigned status);

// The header Retry-After: seconds, or a date of HTTP. `now` is seconds since 1970. Empty: none, or
// invalid. At most an hour.
std::optional<std::chrono::milliseconds> parse_retry_after(std::string_view text, int64_t now);

}  // namespace moorage::link
