// One HTTP/1.1 exchange with an envd, on a connection of its own; what envd_client.h is built on.
// Throws unavailable or not_found when nobody listens (nothing was sent), unknown_outcome when the
// request was sent and no whole answer came in time, corrupted for an answer that is not HTTP or is
// larger than kMaxAnswerBytes.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"

namespace moorage::backends {

inline constexpr size_t kMaxAnswerBytes = 1 << 20;

struct EnvdRequest {
  std::string method = "POST";
  std::string path;
  std::vector<std::pair<std::string, std::string>> headers;  // trusted: no line ends in them
  std::string body;
  std::vector<int> fds;  // borrowed; sent with the first byte
};

struct EnvdAnswer {
  int status = 0;
  std::string body;
};

EnvdAnswer exchange(const Endpoint& endpoint, const EnvdRequest& request,
                    std::chrono::milliseconds deadline);

}  // namespace moorage::backends
