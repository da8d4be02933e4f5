// The daemon's HTTP API for commands. An error answer becomes the Error that the daemon sent.
// A request whose answer was lost is repeated; every change carries an Idempotency-Key, so the
// daemon answers the repeat with the result of the first. Answers are JSON text; callers parse
// them, or print them unchanged for --json.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "cli/client/http_client.h"

namespace moorage::cli {

class Json;

// For long verbs: after half an hour of silence the answer counts as lost.
inline constexpr int kLongSilenceMs = 30 * 60'000;

// True when the daemon was not reached or its answer was lost: it may be restarting.
inline bool is_lost(const Error& error) {
  return error.code() == Code::unknown_outcome || error.code() == Code::unavailable;
}
// Throws the Error that a non-2xx answer carries.
[[noreturn]] void throw_api_error(const HttpResponse& response);
std::string new_idempotency_key();  // 128 random bits

struct SendOptions {
  bool slow = false;               // the answer may take half an hour
  std::string* warning = nullptr;  // receives the daemon's warning
};

class Api {
 public:
  explicit Api(std::string socket_path) : connection_(std::move(socket_path)) {}
  // Called with each warning of an answer, unless its caller takes it. Empty: they are dropped.
  std::function<void(const std::string&)> on_warning{};

  std::string get(const std::string& target);
  // POST, PUT, PATCH or DELETE. `body` is JSON, or empty.
  std::string send(const std::string& method, const std::string& target,
                   const std::string& body = {}, const SendOptions& wanted = {});
  // For long verbs: calls on_progress with each {"phase","percent","text"}; returns the result.
  std::string send_long(const std::string& method, const std::string& target,
                        const std::string& body,
                        const std::function<void(const Json&)>& on_progress);

  // One attempt each: a half transferred body cannot be taken back.
  HttpResponse download(const std::string& target, const BodySink& sink,
                        int silence_timeout_ms = ExchangeOptions{}.silence_timeout_ms);
  std::string upload(const std::string& method, const std::string& target,
                     const BodySource& source);

  HttpConnection& connection() { return connection_; }

 private:
  void warn_of(const HttpResponse& response) const;
  HttpResponse exchange_patiently(const HttpRequest& request, const ExchangeOptions& options = {});

  HttpConnection connection_;
};

}  // namespace moorage::cli
