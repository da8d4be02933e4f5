#include "cli/client/api.h"

#include <sys/random.h>

#include <array>
#include <optional>

#include "cli/client/backoff.h"
#include "cli/client/json.h"

namespace moorage::cli {
namespace {

constexpr std::chrono::seconds kPatience{30};

Error error_of(const Json& json, int status) {
  const std::string message = json.text("message", "the daemon answered " + std::to_string(status));
  return Error(base::code_from_name(json.text("code", "internal")), message, json.text("hint"));
}

// Cuts a byte stream into lines; each is progress, the result or an error.
class LongAnswer {
 public:
  explicit LongAnswer(const std::function<void(const Json&)>& on_progress)
      : on_progress_(on_progress) {}

  void feed(std::string_view bytes) {
    buffer_.append(bytes);
    for (size_t end; (end = buffer_.find('\n')) != std::string::npos; buffer_.erase(0, end + 1)) {
      if (end > 0) line(Json::parse(std::string_view(buffer_).substr(0, end)));
    }
  }

  std::string finish() {
    if (!buffer_.empty()) line(Json::parse(buffer_));
    if (error_) throw Error(*error_);
    if (!result_) {
      throw Error(Code::unknown_outcome, "the daemon's answer ended without a result",
                  "check with: moorage ls, moorage repo ls");
    }
    return *result_;
  }

 private:
  void line(const Json& json) {
    if (json.has("progress") && on_progress_) on_progress_(json.at("progress"));
    // Kept until finish(): thrown here, "unavailable" would be mistaken for a lost connection.
    if (json.has("error")) error_ = error_of(json.at("error"), 500);
    if (json.has("result")) result_ = json.at("result").dump();
  }

  const std::function<void(const Json&)>& on_progress_;
  std::string buffer_;
  std::optional<std::string> result_;
  std::optional<Error> error_;
};

HttpRequest make_change(const std::string& method, const std::string& target,
                        const std::string& body) {
  HttpRequest request{.method = method,
                      .target = target,
                      .headers = {{"Idempotency-Key", new_idempotency_key()}},
                      .body = body};
  if (!body.empty()) request.headers.emplace_back("Content-Type", "application/json");
  return request;
}

}  // namespace

void throw_api_error(const HttpResponse& response) {
  Json json;
  try {
    json = Json::parse(response.body);
  } catch (const Error&) {
    // The body is not an error of the daemon: report the status alone.
  }
  throw error_of(json, response.status);
}

std::string new_idempotency_key() {
  std::array<unsigned char, 16> bytes{};
  base::check(::getrandom(bytes.data(), bytes.size(), 0), "get a random number");
  static constexpr char kHex[] = "0123456789abcdef";
  std::string key = "cli-";
  for (const unsigned char byte : bytes) key += {kHex[byte >> 4], kHex[byte & 15]};
  return key;
}

HttpResponse Api::exchange_patiently(const HttpRequest& request, const ExchangeOptions& options) {
  Backoff backoff(kPatience);
  for (bool sent = false;;) {
    HttpResponse response;
    try {
      response = connection_.exchange(request, options);
    } catch (const Error& error) {
      // Failing to reach the daemon at all is final. A daemon lost in the middle usually comes back
      // and knows the key.
      sent = sent || error.code() == Code::unknown_outcome;
      if (!sent || !is_lost(error) || !backoff.wait()) throw;
      continue;
    }
    if (!response.ok()) throw_api_error(response);
    return response;
  }
}

void Api::warn_of(const HttpResponse& response) const {
  const std::string warning = response.header("Moorage-Warning");
  if (on_warning && !warning.empty()) on_warning(warning);
}

std::string Api::get(const std::string& target) {
  HttpResponse response = exchange_patiently({.target = target});
  warn_of(response);
  return std::move(response.body);
}

std::string Api::send(const std::string& method, const std::string& target, const std::string& body,
                      const SendOptions& wanted) {
  ExchangeOptions options;
  if (wanted.slow) options.silence_timeout_ms = kLongSilenceMs;
  HttpResponse response = exchange_patiently(make_change(method, target, body), options);
  if (wanted.warning)
    *wanted.warning = response.header("Moorage-Warning");
  else
    warn_of(response);
  return std::move(response.body);
}

std::string Api::send_long(const std::string& method, const std::string& target,
                           const std::string& body,
                           const std::function<void(const Json&)>& on_progress) {
  HttpRequest request = make_change(method, target, body);
  request.headers.emplace_back("Accept", "application/x-ndjson");
  std::optional<LongAnswer> lines;
  std::string whole;
  ExchangeOptions options;
  options.silence_timeout_ms = kLongSilenceMs;
  options.on_header = [&](const HttpResponse& head) {  // each attempt starts afresh
    whole.clear();
    lines.reset();
    if (head.header("Content-Type").find("ndjson") != std::string::npos) lines.emplace(on_progress);
  };
  options.sink = [&](std::string_view bytes) {
    lines ? lines->feed(bytes) : static_cast<void>(whole.append(bytes));
  };
  exchange_patiently(request, options);
  return lines ? lines->finish() : whole;
}

HttpResponse Api::download(const std::string& target, const BodySink& sink,
                           int silence_timeout_ms) {
  HttpResponse response = connection_.exchange(
      {.target = target}, {.silence_timeout_ms = silence_timeout_ms, .sink = sink});
  if (!response.ok()) throw_api_error(response);
  warn_of(response);
  return response;
}

std::string Api::upload(const std::string& method, const std::string& target,
                        const BodySource& source) {
  HttpRequest request = make_change(method, target, {});
  request.headers.emplace_back("Content-Type", "application/octet-stream");
  request.source = source;
  const HttpResponse response =
      connection_.exchange(request, {.silence_timeout_ms = kLongSilenceMs});
  if (!response.ok()) throw_api_error(response);
  return response.body;
}

}  // namespace moorage::cli
