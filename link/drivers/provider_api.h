// Calls to a provider's HTTP API with the patience of retry.h. A call is sent again after 429 and
// 503, which say that nothing happened, and where nothing was sent. After another 5xx or without an
// answer it is sent again only if it may run twice; otherwise it throws unknown_outcome, and the
// driver looks before it does anything else. Errors have the codes of driver.h, and name the
// provider, the call, the status and what the provider said. Threads may share it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "link/http/http_client.h"

namespace moorage::link {

struct ApiCall {
  std::string what;  // "create a sandbox": follows "cannot"
  std::string method = "GET";
  std::string target;
  std::string body = {};
  std::string content_type = "application/json";
  bool may_repeat = true;
  bool waits_for_conflict = false;  // 409: it changes state, the same call succeeds later
  std::vector<int> accepted = {};   // statuses besides 2xx that the caller understands
  std::chrono::milliseconds attempt{30'000};
};

struct ApiOptions {
  std::string provider;  // "e2b": begins messages
  Origin origin;
  Trust trust;
  std::vector<std::pair<std::string, std::string>> headers;  // of each call, with the key
};

class ProviderApi {
 public:
  // `cancel` outlives it.
  ProviderApi(ApiOptions options, const Cancel& cancel);

  HttpResponse call(const ApiCall& call, Deadline deadline);
  // For streams, which a driver opens itself; request_of() adds the headers above.
  HttpClient& client() { return client_; }
  HttpRequest request_of(const ApiCall& call) const;
  Error failure(const std::string& what, const HttpResponse& response) const;
  Error failure(const std::string& what, const Error& cause) const;

 private:
  const ApiOptions options_;
  HttpClient client_;
};

// Of one run of a program.
struct RunApis {
  std::unique_ptr<ProviderApi> api;     // ends with the run's Cancel
  std::unique_ptr<const Cancel> never;  // of the next, which works even then
  std::unique_ptr<ProviderApi> release;
};

// A body of any size, in pieces. False: 404.
bool download_body(ProviderApi& api, const ApiCall& call,
                   const std::function<void(std::string_view)>& take, Deadline deadline);

}  // namespace moorage::link
