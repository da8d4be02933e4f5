// The table of the API: method, path pattern, query names, handler. Nothing that is not in it
// answers. A `{}` in a pattern matches one path segment of any bytes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/exchange.h"
#include "daemon/lanes.h"
#include "daemon/traffic.h"
#include "workspace/requests.h"

namespace moorage::daemon {

using Handler = std::function<Reply(const Request&)>;
// With Accept: application/x-ndjson its progress is streamed and its reply is the last line.
using LongHandler = std::function<Reply(const Request&, const workspace::Progress&)>;
using UploadHandler = std::function<std::unique_ptr<BodySink>(const Request&)>;

struct Route {
  std::string method;
  std::string pattern;
  std::variant<Handler, LongHandler, UploadHandler> handler;
  std::vector<std::string> query = {};  // names it takes; any other is refused
  Lane lane = Lane::quick;
  // False: its verb keeps idempotency keys itself (execs), or repeats are harmless by construction.
  bool keep_answers = true;

  bool is_upload() const { return std::holds_alternative<UploadHandler>(handler); }
};

class Router {
 public:
  void add(Route route);
  struct Missed {
    std::string allow;  // methods of this path; empty: no such path
  };
  // Fills in the request's path, query and parameters. Throws invalid_argument for a query that the
  // route does not take.
  std::variant<const Route*, Missed> match(std::string_view target, Request& request) const;
  const std::vector<Route>& routes() const { return routes_; }
  Traffic& traffic() const { return *traffic_; }  // counters: for the server, and the metrics
  Answers& answers(const Route* route) const;     // null: those without a route

 private:
  std::unique_ptr<Traffic> traffic_ = std::make_unique<Traffic>();
  std::vector<Route> routes_;
};

}  // namespace moorage::daemon
