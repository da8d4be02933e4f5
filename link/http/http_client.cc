#include "link/http/http_client.h"

#include <array>

#include "base/error.h"

namespace moorage::link {
namespace {

// Servers and proxies end idle connections after 5 s and more. A request on one that just ended
// would have an unknown outcome.
constexpr std::chrono::milliseconds kFresh{3'000};

std::string head_of(const Origin& origin, const HttpRequest& request) {
  std::string head = request.method + " " + origin.prefix + request.target + " HTTP/1.1\r\n";
  const auto add = [&head](std::string_view name, std::string_view value) {
    // Some values come from a provider: a line end in one would begin another header.
    if (value.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos)
      throw Error(Code::corrupted, "the provider sent a value that does not fit in a header");
    head.append(name).append(": ").append(value).append("\r\n");
  };
  add("Host", origin.authority());
  add("User-Agent", "moorage/" MOORAGE_VERSION);
  for (const auto& [name, value] : request.headers) add(name, value);
  if (!request.body.empty() || request.method != "GET")
    add("Content-Length", std::to_string(request.body.size()));
  return head + "\r\n";
}

}  // namespace

HttpClient::HttpClient(Origin origin, Trust trust, const Cancel& cancel, HttpLimits limits)
    : origin_(std::move(origin)), trust_(std::move(trust)), cancel_(cancel), limits_(limits) {}

std::unique_ptr<ByteStream> HttpClient::connection(Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<ByteStream> kept = std::move(kept_);
    if (kept && std::chrono::steady_clock::now() < fresh_until_ && kept->is_quiet()) return kept;
  }
  return std::make_unique<ByteStream>(origin_, trust_, deadline, cancel_);
}

std::unique_ptr<AnswerReader> HttpClient::send(const HttpRequest& request, Deadline deadline) {
  const std::string head = head_of(origin_, request);
  auto reader = std::make_unique<AnswerReader>(connection(deadline), limits_);
  std::string failure;
  try {
    reader->stream().write(head, deadline);
    reader->stream().write(request.body, deadline);
  } catch (const Error& error) {  // it may have answered before it closed: see below
    failure = error.message();
  }
  try {
    reader->read_head(failure.empty() ? deadline : std::min(deadline, after(kFresh)));
  } catch (const Error& error) {
    if (error.code() == Code::corrupted) throw;
    throw Error(Code::unknown_outcome, failure.empty() ? error.message() : failure);
  }
  return reader;
}

HttpResponse HttpClient::receive_body(AnswerReader& reader, Deadline deadline) const {
  HttpResponse response{reader.status(), reader.headers(), {}};
  std::array<char, 16 << 10> piece;
  try {
    while (const size_t size = reader.read(piece, deadline)) {
      if (response.body.size() + size > limits_.max_body_bytes)
        throw Error(Code::corrupted, "the answer is too long");
      response.body.append(piece.data(), size);
      if (std::chrono::steady_clock::now() > deadline)  // it drips
        throw Error(Code::deadline_exceeded, "no whole answer in time");
    }
  } catch (const Error& error) {
    if (error.code() == Code::corrupted) throw;
    throw Error(Code::unknown_outcome, error.message());
  }
  return response;
}

HttpResponse HttpClient::exchange(const HttpRequest& request, Deadline deadline) {
  const std::unique_ptr<AnswerReader> reader = send(request, deadline);
  HttpResponse response = receive_body(*reader, deadline);
  if (reader->can_be_kept()) {
    const std::lock_guard lock(mutex_);
    kept_ = reader->take_stream();
    fresh_until_ = after(kFresh);
  }
  return response;
}

std::unique_ptr<AnswerReader> HttpClient::open_stream(const HttpRequest& request,
                                                      Deadline deadline) {
  return send(request, deadline);
}

Upgraded HttpClient::upgrade(const HttpRequest& request, Deadline deadline) {
  const std::unique_ptr<AnswerReader> reader = send(request, deadline);
  if (reader->status() != 101) return {receive_body(*reader, deadline), nullptr, {}};
  std::string early = reader->take_early_bytes();
  return {{101, reader->headers(), {}}, reader->take_stream(), std::move(early)};
}

}  // namespace moorage::link
