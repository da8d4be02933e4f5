// The table of the API: method, path pattern, query names, handler. All requests outside it are
// refused. A `{}` in a pattern matches one path segment of any bytes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/metrics.h"
#include "daemon/http/exchange.h"
#include "daemon/http/worker_pools.h"
#include "workspace/verbs/requests.h"

namespace moorage::daemon {

using workspace::Right;
using Handler = std::function<Reply(const Request&)>;
// With Accept: application/x-ndjson its progress is streamed and its reply is the last line.
using LongHandler = std::function<Reply(const Request&, const workspace::Progress&)>;
using UploadHandler = std::function<std::unique_ptr<BodySink>(const Request&)>;

// The right that a route needs on the workspace it names, or that only root may use it. There is no
// default, so a new route does not compile without it. Its verbs are refused any greater right
// (workspace/access/access.h).
class Access {
 public:
  constexpr Access(workspace::Right right)
      : right_(right) {}  // NOLINT(google-explicit-constructor)
  static constexpr Access root() {
    Access access(workspace::Right::none);
    access.root_ = true;
    return access;
  }
  workspace::Right right() const { return right_; }
  void check(const workspace::Caller& caller) const;  // permission_denied: needs root

 private:
  workspace::Right right_;
  bool root_ = false;
};

// What a repeat with the same idempotency key receives (keyed_answers.h).
enum class Keep : uint8_t {
  answer,   // the first request's final answer, written before it is sent
  joined,   // the same; the verb joins the key to its effect, so a success may be written later
  refusal,  // a failed first's answer; else its verb finds its row by the key
  nothing,  // a repeat is a new request
};

struct Route {
  std::string method;
  std::string pattern;
  Access access;
  std::variant<Handler, LongHandler, UploadHandler> handler;
  std::vector<std::string> query = {};  // accepted names; any other is refused, and one given twice
  std::vector<std::string> lists = {};  // accepted names that may have several values
  Lane lane = Lane::quick;
  Keep keep = Keep::answer;
  // Answers a request whose effect exists but whose daemon died before answering. Without it the
  // handler runs again and detects what already exists.
  std::function<Reply(const Request&, const std::string& subject)> resume = {};
  bool conditional = false;  // takes If-Match and If-None-Match; others refuse

  bool is_upload() const { return std::holds_alternative<UploadHandler>(handler); }
};

// Answers by status, for GET /metrics. Counting is one atomic addition.
class Answers {
 public:
  static constexpr int kFirst = 100;
  static constexpr int kLast = 599;
  void add(int status) {
    if (status >= kFirst && status <= kLast) by_status_.at(index(status)).add();
  }
  uint64_t count(int status) const { return by_status_.at(index(status)).value(); }

 private:
  static size_t index(int status) { return static_cast<size_t>(status - kFirst); }
  std::array<base::Counter, kLast - kFirst + 1> by_status_;
};

// The server's own counters.
struct RequestCounters {
  std::deque<Answers> routes;  // in the router's order
  Answers no_route;            // refused before routing
  std::atomic<uint64_t> connections{0};
};

class Router {
 public:
  void add(Route route);
  // Refuses requests without a route with this error, instead of "not found".
  void refuse_others(base::Error refusal) { refusal_ = std::move(refusal); }
  struct Missed {
    std::string allow;  // methods of this path; empty: no such path
  };
  // Fills in the request's path, query and parameters. Throws invalid_argument for a query
  // parameter that the route does not take.
  std::variant<const Route*, Missed> match(std::string_view target, Request& request) const;
  const std::vector<Route>& routes() const { return routes_; }
  RequestCounters& traffic() const { return *traffic_; }  // for the server, and the metrics
  Answers& answers(const Route* route) const;             // null: requests without a route

 private:
  std::unique_ptr<RequestCounters> traffic_ = std::make_unique<RequestCounters>();
  std::vector<Route> routes_;
  std::optional<base::Error> refusal_;
};

}  // namespace moorage::daemon
