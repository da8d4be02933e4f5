// One HTTP/1.1 exchange over a unix socket, on its own connection: with a sandbox's envd
// (envd_client.h) or a container engine (engine_client.h). Throws unavailable or not_found without
// a listener (nothing was sent), unknown_outcome when the request was sent but no whole answer came
// in time, corrupted for an answer that is not HTTP or exceeds the limit.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace moorage::backends {

struct HttpPeer {
  std::string unix_socket;
  std::string noun;  // "the sandbox's warden": used in messages
  size_t max_answer_bytes = 1 << 20;
};

struct HttpRequest {
  std::string method = "POST";
  std::string path;
  std::vector<std::pair<std::string, std::string>> headers{};  // trusted: contain no line ends
  std::string body{};
  std::vector<int> fds{};  // borrowed; sent with the first byte
};

struct HttpAnswer {
  int status = 0;
  std::string body;
};

HttpAnswer exchange(const HttpPeer& peer, const HttpRequest& request,
                    std::chrono::milliseconds deadline);

}  // namespace moorage::backends
