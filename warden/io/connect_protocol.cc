#include "warden/io/connect_protocol.h"

#include <array>
#include <boost/beast/core/detail/base64.hpp>
#include <boost/json.hpp>

namespace moorage::warden {
namespace {

namespace base64 = boost::beast::detail::base64;

struct ConnectCode {
  std::string_view name;
  int status;
};
// In the order of Code.
constexpr std::array<ConnectCode, 13> kCodes{{{"invalid_argument", 400},
                                              {"not_found", 404},
                                              {"already_exists", 409},
                                              {"failed_precondition", 400},
                                              {"permission_denied", 403},
                                              {"unavailable", 503},
                                              {"unimplemented", 501},
                                              {"resource_exhausted", 429},
                                              {"deadline_exceeded", 504},
                                              {"unknown", 500},
                                              {"data_loss", 500},
                                              {"internal", 500},
                                              {"internal", 500}}};

}  // namespace

std::string_view connect_code(Code code) { return kCodes.at(static_cast<size_t>(code)).name; }

int connect_status(Code code) { return kCodes.at(static_cast<size_t>(code)).status; }

std::string start_event(uint32_t pid) {
  return "{\"event\":{\"start\":{\"pid\":" + std::to_string(pid) + "}}}";
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
