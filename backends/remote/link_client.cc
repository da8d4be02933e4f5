#include "backends/remote/link_client.h"

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "backends/engine/unix_http.h"
#include "base/error.h"
#include "base/log.h"

namespace moorage::backends {
namespace {

namespace json = boost::json;

constexpr size_t kMaxAnswerBytes = 64 << 10;
constexpr size_t kMaxTextBytes = 2000;
constexpr size_t kMaxDepth = 8;

std::string text_in(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  if (!value || !value->is_string()) return {};
  return base::escape_for_message(std::string_view(value->get_string()).substr(0, kMaxTextBytes));
}

[[noreturn]] void throw_told(const HttpAnswer& answer) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  options.allow_invalid_utf8 = true;
  boost::system::error_code invalid;
  const json::value value = json::parse(answer.body, invalid, {}, options);
  if (invalid || !value.is_object())
    throw Error(Code::corrupted, "the link to the other machine sent an invalid error");
  const json::object& error = value.get_object();
  const std::string message = text_in(error, "message");
  throw Error(base::code_from_name(text_in(error, "code")),
              message.empty() ? "the link to the other machine refused" : message,
              text_in(error, "hint"));
}

std::string ask(const Endpoint& endpoint, const HttpRequest& request,
                std::chrono::milliseconds deadline) {
  const HttpPeer peer{endpoint.unix_socket, "the link to the other machine", kMaxAnswerBytes};
  HttpAnswer answer;
  try {
    answer = exchange(peer, request, deadline);
  } catch (const Error& error) {
    if (error.code() != Code::unknown_outcome) throw;
    throw Error(Code::unavailable, error.message(), error.hint());
  }
  if (answer.status != 200) throw_told(answer);
  return std::move(answer.body);
}

}  // namespace

void LinkClient::request(const std::string& path, const std::string& body, Deadline deadline) {
  ask(endpoint_,
      {.path = "/moorage/" + path, .headers = {{"Content-Type", "application/json"}}, .body = body},
      deadline);
}

void LinkClient::connect(Deadline deadline) { request("connect", "{}", deadline); }

void LinkClient::begin(const std::vector<base::LinkLayer>& layers, Deadline deadline) {
  request("begin", base::link_layers_text(layers), deadline);
}

void LinkClient::sync(Deadline deadline) { request("sync", "{}", deadline); }

void LinkClient::changed(const std::vector<std::string>& paths, Deadline deadline) {
  if (paths.size() > kMaxChangedPaths)
    throw Error(Code::invalid_argument,
                "at most " + std::to_string(kMaxChangedPaths) + " paths at once");
  request("changed",
          json::serialize(json::object{{"paths", json::array(paths.begin(), paths.end())}}),
          deadline);
}

void LinkClient::keep(const std::string& tag, int journal_fd, uint64_t room_bytes,
                      Deadline deadline) {
  ask(endpoint_,
      {.path = "/moorage/keep",
       .headers = {{"Content-Type", "application/json"}},
       .body = json::serialize(json::object{{"tag", tag}, {"room_bytes", room_bytes}}),
       .fds = {journal_fd}},
      deadline);
}

bool LinkClient::follows(const std::string& tag, Deadline deadline) {
  const std::string answer = ask(endpoint_,
                                 {.path = "/moorage/follows",
                                  .headers = {{"Content-Type", "application/json"}},
                                  .body = json::serialize(json::object{{"tag", tag}})},
                                 deadline);
  boost::system::error_code invalid;
  const json::value value = json::parse(answer, invalid);
  const json::object* object = invalid ? nullptr : value.if_object();
  const json::value* follows = object ? object->if_contains("follows") : nullptr;
  if (!follows || !follows->is_bool())
    throw Error(Code::corrupted, "the link to the other machine sent an invalid answer");
  return follows->get_bool();
}

base::LinkStatus LinkClient::status(Deadline deadline) {
  base::LinkStatus status = base::parse_link_status(
      ask(endpoint_, {.method = "GET", .path = "/moorage/remote"}, deadline));
  status.overlay = base::escape_for_message(status.overlay);
  status.reason = base::escape_for_message(status.reason);
  return status;
}

void LinkClient::destroy(Deadline deadline) { request("destroy", "{}", deadline); }

LinkClient::Ended LinkClient::shut_down(const ShutDown& how, Deadline deadline) {
  const std::string body =
      json::serialize(json::object{{"grace_ms", how.grace.count()}, {"keep", how.keep}});
  const std::string answer = ask(endpoint_,
                                 {.path = "/moorage/shutdown",
                                  .headers = {{"Content-Type", "application/json"}},
                                  .body = body},
                                 how.grace + deadline);
  boost::system::error_code invalid;
  const json::value value = json::parse(answer, invalid);
  const json::object* object = invalid ? nullptr : value.if_object();
  const json::value* kept = object ? object->if_contains("kept") : nullptr;
  if (!kept || !kept->is_bool()) return {};
  return {kept->get_bool(), text_in(*object, "why")};
}

}  // namespace moorage::backends
