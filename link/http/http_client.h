// HTTP/1.1 to one origin: blocking, a deadline for each exchange, limits for heads and bodies, one
// connection kept while it is fresh. Boost.Beast is seen by answer_reader.cc alone. No retries
// here: drivers/provider_api.h has them. Errors: unavailable, unsupported = nothing was sent;
// unknown_outcome = sent, but no whole answer came; corrupted = the answer is not HTTP or exceeds a
// limit. An HTTP error status is data. Threads may share it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "link/http/answer_reader.h"
#include "link/http/byte_stream.h"

namespace moorage::link {

struct HttpRequest {
  std::string method = "GET";
  std::string target = "/";  // below the origin's prefix; percent-encoded
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
};

struct HttpResponse {
  int status = 0;
  HttpHeaders headers;
  std::string body;
};

// For a WebSocket, after its 101.
struct Upgraded {
  HttpResponse response;
  std::unique_ptr<ByteStream> stream;
  std::string early;  // bytes that came behind the head
};

class HttpClient {
 public:
  // `cancel` outlives it.
  HttpClient(Origin origin, Trust trust, const Cancel& cancel, HttpLimits limits = {});

  HttpResponse exchange(const HttpRequest& request, Deadline deadline);
  // Returns behind the head; the body is read from the result. For any status.
  std::unique_ptr<AnswerReader> open_stream(const HttpRequest& request, Deadline deadline);
  // `stream` is empty unless the status is 101; then the response has its body.
  Upgraded upgrade(const HttpRequest& request, Deadline deadline);

  const Origin& origin() const { return origin_; }

 private:
  std::unique_ptr<ByteStream> connection(Deadline deadline);
  std::unique_ptr<AnswerReader> send(const HttpRequest& request, Deadline deadline);
  HttpResponse receive_body(AnswerReader& reader, Deadline deadline) const;

  const Origin origin_;
  const Trust trust_;
  const Cancel& cancel_;
  const HttpLimits limits_;
  std::mutex mutex_;  // guards what follows
  std::unique_ptr<ByteStream> kept_;
  Deadline fresh_until_{};
};

}  // namespace moorage::link
