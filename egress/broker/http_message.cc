#include "egress/broker/http_message.h"

#include <algorithm>
#include <boost/json.hpp>

namespace moorage::egress {
namespace {

// permessage-deflate is the only extension of WebSockets that programs offer.
constexpr std::string_view kExtensions = "Sec-WebSocket-Extensions";
// Of HTTP, of gRPC's messages and of Connect's.
constexpr std::string_view kAcceptEncodings[] = {"Accept-Encoding", "Grpc-Accept-Encoding",
                                                 "Connect-Accept-Encoding"};
constexpr std::string_view kEncodings[] = {"Content-Encoding", "Grpc-Encoding",
                                           "Connect-Content-Encoding"};
constexpr int kNoContent = 204;
constexpr int kNotModified = 304;
constexpr std::string_view kOverrides[] = {"X-HTTP-Method-Override", "X-HTTP-Method",
                                           "X-Method-Override", "X-Original-URL", "X-Rewrite-URL"};

}  // namespace

bool same_name(std::string_view one, std::string_view other) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(one, other, {}, lower, lower);
}

std::string override_in(const Fields& fields) {
  for (const Field& field : fields) {
    if (std::ranges::any_of(kOverrides,
                            [&field](auto name) { return same_name(name, field.name); }))
      return field.name;
  }
  return {};
}

bool allows_compression(const Field& field) {
  return same_name(field.name, kExtensions) ||
         std::ranges::any_of(kAcceptEncodings,
                             [&field](auto name) { return same_name(name, field.name); });
}

bool is_compressed(const ResponseHead& head) {
  return std::ranges::any_of(head.fields, [](const Field& field) {
    const bool encoding = std::ranges::any_of(
        kEncodings, [&field](auto name) { return same_name(name, field.name); });
    return (encoding && !same_name(field.value, "identity")) || same_name(field.name, kExtensions);
  });
}

bool has_body(std::string_view method, int status) {
  return method != "HEAD" && status != kNoContent && status != kNotModified;
}

// In the form of both large families of model APIs, so that their clients show the message.
std::string error_body(std::string_view message) {
  const boost::json::object error{{"type", "permission_error"},
                                  {"code", "moorage_refused"},
                                  {"message", "moorage: " + std::string(message)}};
  return boost::json::serialize(boost::json::object{{"type", "error"}, {"error", error}}) + "\n";
}

}  // namespace moorage::egress
