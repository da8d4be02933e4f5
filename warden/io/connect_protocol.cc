#include "warden/io/connect_protocol.h"

#include <boost/beast/core/detail/base64.hpp>
#include <boost/json.hpp>

namespace moorage::warden {
namespace {

namespace base64 = boost::beast::detail::base64;
using base::Code;
using base::Error;

}  // namespace

std::string_view connect_code(Code code) {
  switch (code) {
    case Code::invalid_argument:
      return "invalid_argument";
    case Code::not_found:
      return "not_found";
    case Code::already_exists:
      return "already_exists";
    case Code::conflict:
      return "failed_precondition";
    case Code::permission_denied:
      return "permission_denied";
    case Code::unavailable:
      return "unavailable";
    case Code::unsupported:
      return "unimplemented";
    case Code::resource_exhausted:
      return "resource_exhausted";
    case Code::deadline_exceeded:
      return "deadline_exceeded";
    case Code::unknown_outcome:
      return "unknown";
    case Code::corrupted:
      return "data_loss";
    case Code::io:
      return "internal";
    case Code::internal:
      return "internal";
  }
  return "internal";
}

int connect_status(Code code) {
  switch (code) {
    case Code::invalid_argument:
    case Code::conflict:
      return 400;
    case Code::permission_denied:
      return 403;
    case Code::not_found:
      return 404;
    case Code::already_exists:
      return 409;
    case Code::resource_exhausted:
      return 429;
    case Code::unsupported:
      return 501;
    case Code::unavailable:
      return 503;
    case Code::deadline_exceeded:
      return 504;
    case Code::unknown_outcome:
    case Code::corrupted:
    case Code::io:
    case Code::internal:
      return 500;
  }
  return 500;
}

std::string error_json(const Error& error) {
  std::string message = error.message();
  if (!error.hint().empty()) message += "; " + error.hint();
  return boost::json::serialize(
      boost::json::object{{"code", std::string(connect_code(error.code()))}, {"message", message}});
}

std::string end_of_stream_json(const Error& error) {
  return "{\"error\":" + error_json(error) + "}";
}

std::string_view only_envelope(std::string_view body) {
  if (body.size() < 5) throw Error(Code::invalid_argument, "the stream message lacks an envelope");
  if (body[0] != 0)
    throw Error(Code::invalid_argument, "compressed stream messages are not supported");
  uint32_t size = 0;
  for (int i = 1; i <= 4; ++i) size = size << 8 | static_cast<uint8_t>(body[i]);
  if (size != body.size() - 5) {
    throw Error(Code::invalid_argument, "the envelope's length does not match its message");
  }
  return body.substr(5);
}

std::string encode_base64(std::string_view bytes) {
  std::string text(base64::encoded_size(bytes.size()), '\0');
  text.resize(base64::encode(text.data(), bytes.data(), bytes.size()));
  return text;
}

std::string decode_base64(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string bytes(text.size() / 4 * 3 + 3, '\0');
  auto [written, read] = base64::decode(bytes.data(), text.data(), text.size());
  if (read != text.size() || read % 4 == 1) throw Error(Code::invalid_argument, "invalid base64");
  bytes.resize(written);
  return bytes;
}

}  // namespace moorage::warden
