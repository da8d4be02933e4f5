#include "daemon/http/exchange.h"

#include <boost/json.hpp>
#include <charconv>

#include "base/log.h"
#include "base/parts.h"

namespace moorage::daemon {

std::optional<std::string> Request::query_text(const std::string& name) const {
  const auto found = query.find(name);
  if (found == query.end()) return std::nullopt;
  return found->second;
}

std::vector<std::string> Request::query_list(const std::string& name) const {
  const auto found = query.find(name);
  if (found == query.end()) return {};
  const auto values = base::split(found->second, '\0');
  return {values.begin(), values.end()};
}

std::string Request::required_query(const std::string& name) const {
  auto value = query_text(name);
  if (!value) throw Error(Code::invalid_argument, "the query parameter '" + name + "' is missing");
  return *value;
}

bool Request::query_flag(const std::string& name) const {
  const auto value = query_text(name);
  if (!value || *value == "0" || *value == "false") return false;
  if (*value == "1" || *value == "true") return true;
  throw Error(Code::invalid_argument, "the query parameter '" + name + "' must be 0 or 1");
}

std::optional<uint64_t> Request::query_number(const std::string& name, uint64_t max) const {
  const auto value = query_text(name);
  if (!value) return std::nullopt;
  uint64_t number = 0;
  const char* end = value->data() + value->size();
  const auto parsed = std::from_chars(value->data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number > max) {
    throw Error(Code::invalid_argument, "the query parameter '" + name +
                                            "' must be a number from 0 to " + std::to_string(max));
  }
  return number;
}

size_t Request::query_limit(size_t usual) const {
  constexpr uint64_t kMost = 1000;
  uint64_t limit = 0;
  try {
    limit = query_number("limit", kMost).value_or(usual);
  } catch (const Error&) {
    limit = 0;
  }
  if (limit > 0) return limit;
  throw Error(Code::invalid_argument, "the query parameter 'limit' must be a number from 1 to 1000",
              "leave it out for " + std::to_string(usual) + "; request further pages for more");
}

Reply Reply::json(std::string body, int status, std::string subject) {
  Reply reply;
  reply.status = status;
  reply.body = std::move(body);
  reply.subject = std::move(subject);
  return reply;
}

Reply Reply::stream(std::unique_ptr<BodySource> source, std::string_view type,
                    std::string subject) {
  Reply reply = json({}, 200, std::move(subject));
  reply.content_type = type;
  reply.source = std::move(source);
  return reply;
}

Reply Reply::none(std::string subject) { return json({}, 204, std::move(subject)); }

int status_of(Code code) {
  using enum Code;
  constexpr std::pair<Code, int> kStatuses[] = {{invalid_argument, 400},  {permission_denied, 403},
                                                {not_found, 404},         {already_exists, 409},
                                                {conflict, 409},          {unavailable, 503},
                                                {unsupported, 501},       {resource_exhausted, 507},
                                                {deadline_exceeded, 504}, {unknown_outcome, 502}};
  for (const auto& [one, status] : kStatuses)
    if (one == code) return status;
  return 500;  // corrupted, io, internal
}

// A message may quote arbitrary bytes from outside; JSON needs UTF-8.
std::string error_json(const Error& error) {
  const boost::json::object object{{"code", base::code_name(error.code())},
                                   {"message", base::escape_for_message(error.message())},
                                   {"hint", base::escape_for_message(error.hint())}};
  return boost::json::serialize(object);
}

Reply error_reply(const Error& error) {
  return Reply::json(error_json(error), status_of(error.code()));
}

Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    base::log(base::LogLevel::error, "daemon.bug", {{"what", error.what()}});
    return Error(Code::internal, "internal error", "see the daemon's log for details");
  }
}

}  // namespace moorage::daemon
