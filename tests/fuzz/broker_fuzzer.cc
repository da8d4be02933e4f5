// What a program and a host may send each other through the broker, in HTTP/1.1 and HTTP/2. The
// first byte chooses the version; then come pieces: a byte with the side and the length, and the
// bytes.
#include <memory>

#include "egress/broker/h2_conversation.h"
#include "egress/broker/http_exchange.h"
#include "fuzz.h"

namespace moorage {
namespace {

const std::string kSecret = "secret-of-the-api";

struct Both {
  explicit Both(bool h2) {
    if (h2)
      talk = std::make_unique<egress::H2Conversation>("a.example", 443);
    else
      talk = std::make_unique<egress::HttpExchange>("a.example", 443);
  }

  void judge() {
    while (egress::Exchange* const exchange = talk->next()) {
      const egress::RequestHead& head = exchange->request();
      fuzz::require(head.method != "TRACE" && head.method != "CONNECT", "some methods never pass");
      fuzz::require(head.target.starts_with('/') || head.target == "*", "a target is a path");
      exchange->on_response([exchange](const egress::ResponseHead& answer) {
        if (answer.status == 401 && !exchange->repeat()) exchange->refuse("expired");
      });
      if (head.target.starts_with("/later")) continue;
      if (head.target.starts_with("/no")) {
        exchange->refuse("not this one");
      } else {
        exchange->pass({{"authorization"}, {{"Authorization", "Bearer " + kSecret}}, {kSecret}});
      }
    }
  }

  void give(bool to_host, std::string_view bytes) {
    if (to_host && talk->takes_from_client()) talk->from_client(bytes);
    if (!to_host) talk->from_server(bytes);
    judge();
    talk->fill();
    sent += talk->to_server.size();
    talk->to_server.clear();
    arrived += talk->to_client;
    talk->to_client.clear();
  }

  std::unique_ptr<egress::Conversation> talk;
  std::string arrived;
  size_t sent = 0;
};

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  if (size == 0) return 0;
  std::string_view input(reinterpret_cast<const char*>(data), size);
  const bool h2 = (input[0] & 1) != 0;
  Both both(h2);
  input.remove_prefix(1);
  while (!input.empty() && !both.talk->is_over()) {
    const auto head = static_cast<unsigned char>(input[0]);
    const std::string_view piece = input.substr(1, head & 127);
    input.remove_prefix(1 + piece.size());
    both.give((head & 128) == 0, piece);
  }
  both.talk->server_ended();
  both.give(true, {});
  fuzz::require(both.arrived.find(kSecret) == std::string::npos, "the secret does not come back");
  return 0;
}
