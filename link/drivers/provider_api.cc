#include "link/drivers/provider_api.h"

#include <algorithm>
#include <ctime>
#include <optional>

#include "base/error.h"
#include "link/drivers/json_reader.h"
#include "link/retry.h"

namespace moorage::link {
namespace {

bool says_nothing_happened(int status) { return status == 429 || status == 503; }

// The text of {"message"} or {"error"}, as all providers have.
std::string message_of(const HttpResponse& response) {
  try {
    const boost::json::value body = parse_answer(response.body);
    const JsonObject& object = object_in(body, "the body");
    for (const char* name : {"message", "error"}) {
      const boost::json::value* found = object.if_contains(name);
      if (found != nullptr && found->is_string()) return printable(found->get_string());
      if (found != nullptr && found->is_array()) return printable(boost::json::serialize(*found));
    }
  } catch (const Error&) {
    return printable(response.body);  // not from the API: often a proxy's page
  }
  return {};
}

Code code_of(int status) {
  if (status == 401 || status == 403) return Code::permission_denied;
  if (status == 404 || status == 410) return Code::not_found;
  if (status == 402 || status == 413 || status == 429 || status == 507)
    return Code::resource_exhausted;
  if (status == 408 || status == 409 || status == 425 || status >= 500) return Code::unavailable;
  return Code::unsupported;
}

std::string hint_of(int status) {
  if (status == 401 || status == 403) return "check the key of the provider, and what it may do";
  if (status == 402 || status == 429)
    return "wait until other sandboxes have ended, or raise the limit of the account";
  if (status == 404) return "check the provider's URL, template and account in the configuration";
  if (status == 409) return "it changes its state; try again later";
  if (status >= 500) return "the provider has a problem; try again later";
  return "check the provider's section in the configuration";
}

bool may_send_again(const ApiCall& call, int status) {
  return says_nothing_happened(status) || (status == 409 && call.waits_for_conflict) ||
         (worth_retrying(static_cast<unsigned>(status)) && call.may_repeat);
}

}  // namespace

ProviderApi::ProviderApi(ApiOptions options, const Cancel& cancel)
    : options_(std::move(options)), client_(options_.origin, options_.trust, cancel) {}

HttpRequest ProviderApi::request_of(const ApiCall& call) const {
  HttpRequest request{call.method, call.target, options_.headers, call.body};
  if (!call.body.empty()) request.headers.emplace_back("Content-Type", call.content_type);
  request.headers.emplace_back("Accept", "*/*");
  return request;
}

Error ProviderApi::failure(const std::string& what, const HttpResponse& response) const {
  const std::string said = message_of(response);
  return Error(code_of(response.status),
               options_.provider + ": cannot " + what + ": HTTP " +
                   std::to_string(response.status) + (said.empty() ? "" : ": " + said),
               hint_of(response.status));
}

Error ProviderApi::failure(const std::string& what, const Error& cause) const {
  return Error(cause.code(), options_.provider + ": cannot " + what + ": " + cause.message(),
               cause.hint().empty()
                   ? "check this host's network and the state of " + options_.origin.str()
                   : cause.hint());
}

HttpResponse ProviderApi::call(const ApiCall& call, Deadline deadline) {
  const HttpRequest request = request_of(call);
  for (Retry retry(deadline);;) {
    std::optional<HttpResponse> response;
    std::optional<Error> trouble;
    try {
      response = client_.exchange(request, std::min(deadline, after(call.attempt)));
    } catch (const Error& error) {
      trouble = failure(call.what, error);
      const bool unanswered = error.code() == Code::unknown_outcome;
      if (error.code() != Code::unavailable && !(unanswered && call.may_repeat)) throw *trouble;
      const bool over = std::chrono::steady_clock::now() >= deadline;
      if (unanswered) {
        trouble = Error(over ? Code::deadline_exceeded : Code::unavailable, trouble->message(),
                        trouble->hint());
      }
    }
    if (!response) {
      retry.wait(*trouble);
      continue;
    }
    const int status = response->status;
    const auto& accepted = call.accepted;
    if ((status >= 200 && status < 300) ||
        std::find(accepted.begin(), accepted.end(), status) != accepted.end()) {
      return std::move(*response);
    }
    trouble = failure(call.what, *response);
    if (!may_send_again(call, status)) {
      if (status < 500) throw *trouble;
      throw Error(Code::unknown_outcome, trouble->message(), trouble->hint());
    }
    retry.wait(*trouble,
               parse_retry_after(response->headers.get("Retry-After"), std::time(nullptr)));
  }
}

bool download_body(ProviderApi& api, const ApiCall& call,
                   const std::function<void(std::string_view)>& take, Deadline deadline) {
  try {
    const auto reader = api.client().open_stream(api.request_of(call), deadline);
    std::string piece(64 << 10, '\0');
    if (reader->status() == 404) return false;
    if (reader->status() != 200)
      throw Error(code_of(reader->status()), "HTTP " + std::to_string(reader->status()));
    while (const size_t size = reader->read(piece, deadline)) {
      take(std::string_view(piece).substr(0, size));
      if (std::chrono::steady_clock::now() > deadline)
        throw Error(Code::deadline_exceeded, "it takes too long");
    }
    return true;
  } catch (const Error& error) {
    throw api.failure(call.what, error);
  }
}

}  // namespace moorage::link
