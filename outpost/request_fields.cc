#include "outpost/request_fields.h"

#include <boost/json.hpp>

#include "base/error.h"

namespace moorage::outpost {

namespace json = boost::json;

namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Code::invalid_argument, message);
}

}  // namespace

std::string text_in(const json::object& request, std::string_view name) {
  const json::value* value = request.if_contains(name);
  if (!value || !value->is_string()) refuse(std::string(name) + " must be a string");
  return std::string(value->get_string());
}

bool flag_in(const json::object& request, std::string_view name) {
  const json::value* value = request.if_contains(name);
  if (!value) return false;
  if (!value->is_bool()) refuse(std::string(name) + " must be true or false");
  return value->get_bool();
}

uint64_t number_in(const json::object& request, std::string_view name) {
  const json::value* value = request.if_contains(name);
  if (value && value->is_uint64()) return value->get_uint64();
  if (value && value->is_int64() && value->get_int64() >= 0)
    return static_cast<uint64_t>(value->get_int64());
  refuse(std::string(name) + " must be a number");
}

json::object parse_request(std::string_view text) {
  boost::system::error_code error;
  json::value value = json::parse(text, error);
  if (error || !value.is_object()) refuse("a request must be a JSON object");
  return std::move(value.get_object());
}

std::unique_ptr<Channel> text_answer(Wire wire, const std::string& answer) {
  return std::make_unique<Answer>(wire, answer);
}

}  // namespace moorage::outpost
