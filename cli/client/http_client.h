// HTTP/1.1 over the daemon's unix socket: one keep-alive connection, one exchange at a time,
// blocking with a deadline. Boost.Beast is seen by http_client.cc alone. No retries here: only the
// callers know what a lost answer means (api.h, cli/stream/output_follower.h,
// cli/stream/stdin_pump.h). Errors: unavailable or permission_denied = not connected, nothing was
// sent; unknown_outcome = the connection ended or fell silent before the whole answer arrived. An
// HTTP error status is data. Every request carries MOORAGE_LEASE, read when the connection was
// made, as its lease. Reads need none, but an export may stop commands.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/os/fd.h"

namespace moorage::cli {

// Fills the buffer with up to `size` bytes; 0 ends the body.
using BodySource = std::function<size_t(char* buffer, size_t size)>;
using BodySink = std::function<void(std::string_view bytes)>;

struct HttpRequest {
  std::string method = "GET";
  std::string target = "/";  // percent-encoded by the caller
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
  BodySource source = {};  // when set, the body is streamed chunked instead of `body`
};

struct HttpResponse {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;  // empty when it went to a sink
  std::string header(std::string_view name) const;
  bool ok() const { return status >= 200 && status < 300; }
};

struct ExchangeOptions {
  int silence_timeout_ms = 120'000;    // longest time without a byte; -1: forever
  size_t max_body_bytes = 256u << 20;  // of a body that is kept
  BodySink sink = {};                  // receives the body of a 2xx answer in pieces, without limit
  std::function<void(const HttpResponse&)> on_header = {};  // before the body
};

class HttpConnection {
 public:
  explicit HttpConnection(std::string socket_path);
  ~HttpConnection();
  HttpConnection(HttpConnection&&) = delete;

  HttpResponse exchange(const HttpRequest& request, const ExchangeOptions& options = {});
  // From any thread: the exchange in progress and all later ones fail at once.
  void cancel();

 private:
  struct Link;
  Link& connect();

  const std::string socket_path_;
  const std::string lease_;
  const Fd cancel_fd_;  // an eventfd: readable once cancelled
  std::atomic<bool> cancelled_{false};
  std::unique_ptr<Link> link_;
};

// Percent-encodes all bytes except unreserved characters (and '/' when asked).
std::string percent_encode(std::string_view bytes, bool keep_slashes = false);

}  // namespace moorage::cli
