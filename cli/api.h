// The daemon's HTTP API for commands: an error answer becomes the base::Error that the daemon
// meant, and a lost answer is asked for again. Every change carries an Idempotency-Key, and a
// repeat carries the same one, so the daemon answers with what the first did: that is what makes
// the repeat safe. Answers are JSON text; the callers parse them, or print them as they are for
// --json.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cli/http_client.h"

namespace moorage::cli {

class Json;

// Of a verb that takes long: one that says nothing for half an hour is lost.
inline constexpr int kLongSilenceMs = 30 * 60'000;

// Throws the Error that a non-2xx answer carries.
[[noreturn]] void throw_api_error(const HttpResponse& response);
std::string new_idempotency_key();  // 128 random bits

struct SendOptions {
  bool slow = false;               // the answer may take half an hour
  std::string* warning = nullptr;  // gets what the daemon wants to be told
};

class Api {
 public:
  explicit Api(std::string socket_path) : connection_(std::move(socket_path)) {}

  std::string get(const std::string& target);
  // POST, PUT, PATCH or DELETE. `body` is JSON, or empty.
  std::string send(const std::string& method, const std::string& target,
                   const std::string& body = {}, const SendOptions& wanted = {});
  // For verbs that take long: on_progress sees each {"phase","percent","text"} as it comes; the
  // answer is the result.
  std::string send_long(const std::string& method, const std::string& target,
                        const std::string& body,
                        const std::function<void(const Json&)>& on_progress);

  // One attempt each: a body that was half read or half written cannot be taken back.
  HttpResponse download(const std::string& target, const BodySink& sink,
                        int silence_timeout_ms = ExchangeOptions{}.silence_timeout_ms);
  std::string upload(const std::string& method, const std::string& target,
                     const BodySource& source);

  HttpConnection& connection() { return connection_; }

 private:
  HttpResponse exchange_patiently(const HttpRequest& request, const ExchangeOptions& options = {});

  HttpConnection connection_;
};

}  // namespace moorage::cli
