#include "warden/request_json.h"

#include <boost/json.hpp>

#include "base/error.h"

namespace moorage::warden {
namespace {

constexpr size_t kMaxDepth = 32;

}  // namespace

namespace json = boost::json;

json::object parse_object(std::string_view text) {
  if (text.empty()) return {};
  json::parse_options options;
  options.max_depth = kMaxDepth;
  options.allow_invalid_utf8 = true;  // arguments and environment are bytes, not text
  boost::system::error_code error;
  json::value value = json::parse(text, error, {}, options);
  if (error || !value.is_object()) {
    throw Error(Code::invalid_argument, "the request is not a JSON object of depth <= 32");
  }
  return std::move(value.get_object());
}

const json::object& member_object(const json::object& body, std::string_view name) {
  const json::value* value = body.if_contains(name);
  if (!value || !value->is_object()) {
    throw Error(Code::invalid_argument, std::string(name) + " is missing");
  }
  return value->get_object();
}

// proto3 JSON writes int64 as a string; a number is accepted too.
std::optional<uint64_t> read_offset(const json::object& body) {
  const json::value* value = body.if_contains("offset");
  if (!value) return std::nullopt;
  if (value->is_int64() && value->get_int64() >= 0) return value->get_int64();
  if (value->is_string() && !value->get_string().empty() && value->get_string().size() < 20) {
    std::string text(value->get_string());
    if (text.find_first_not_of("0123456789") == std::string::npos) return std::stoull(text);
  }
  throw Error(Code::invalid_argument, "offset is not a valid number of bytes");
}

}  // namespace moorage::warden
