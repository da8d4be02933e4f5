#include "daemon/http/router.h"

#include <algorithm>
#include <optional>

#include "daemon/http/http_text.h"

namespace moorage::daemon {
namespace {

std::optional<std::vector<std::string>> match_segments(
    const std::string& pattern, const std::vector<std::string_view>& segments) {
  const Target shape{pattern, {}};
  const auto wanted = shape.segments();
  if (wanted.size() != segments.size()) return std::nullopt;
  std::vector<std::string> parameters;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] != "{}") {
      if (wanted[i] != segments[i]) return std::nullopt;
    } else if (segments[i].empty()) {
      return std::nullopt;
    } else {
      parameters.push_back(percent_decode(segments[i], false));
    }
  }
  return parameters;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

void Access::check(const workspace::Caller& caller) const {
  if (!root_ || caller.root()) return;
  throw Error(Code::permission_denied, "needs root: affects the whole store", "use sudo");
}

void Router::add(Route route) {
  routes_.push_back(std::move(route));
  traffic_->routes.emplace_back();
}

Answers& Router::answers(const Route* route) const {
  if (route == nullptr) return traffic_->no_route;
  return traffic_->routes.at(static_cast<size_t>(route - routes_.data()));
}

std::variant<const Route*, Router::Missed> Router::match(std::string_view text,
                                                         Request& request) const {
  Target target = parse_target(text);
  const auto segments = target.segments();
  request.path = target.path;
  Missed missed;
  for (const auto& route : routes_) {
    auto parameters = match_segments(route.pattern, segments);
    if (!parameters) continue;
    if (route.method != request.method) {
      missed.allow += (missed.allow.empty() ? "" : ", ") + route.method;
      continue;
    }
    for (const auto& [name, value] : target.query) {
      if (contains(route.lists, name)) continue;
      if (!contains(route.query, name))
        throw Error(Code::invalid_argument, "unknown query parameter '" + name + "'");
      if (value.find('\0') != std::string::npos)
        throw Error(Code::invalid_argument, "the query parameter '" + name + "' is given twice");
    }
    request.parameters = std::move(*parameters);
    request.query = std::move(target.query);
    return &route;
  }
  if (refusal_) throw Error(*refusal_);
  return missed;
}

}  // namespace moorage::daemon
