// The words of a machine or provider that are read whole: the first byte selects the parser. Each
// refuses with an error or returns something within its limits; none throws anything else.
#include <sys/socket.h>

#include <array>
#include <boost/json.hpp>

#include "base/os/fd.h"
#include "base/wire/link_config.h"
#include "base/wire/mux.h"
#include "base/wire/network_line.h"
#include "base/wire/network_relay.h"
#include "base/wire/text_stream.h"
#include "fuzz.h"
#include "link/drivers/json_reader.h"
#include "link/http/origin.h"
#include "link/http_head.h"
#include "link/keeper_line.h"
#include "link/recovery/greeting.h"
#include "link/retry.h"

namespace moorage {
namespace {

namespace json = boost::json;

void http_head(std::string_view text) {
  const auto head = link::parse_http_head(text);
  if (!head) return;
  fuzz::require(head->bytes <= text.size(), "a head is within its text");
  head->number("content-length");
  const std::string passed = link::head_for_spool(*head);
  const auto again = link::parse_http_head(passed);
  fuzz::require(again && again->bytes == passed.size(), "a head that is passed on is a head");
  fuzz::require(again->header("moorage-journal").empty(), "descriptors stay here");
  // Whoever reads it must not see a second request.
  fuzz::require(passed.find("\r\n\r\n") + 4 == passed.size(), "a head has one end");
}

void greeting(std::string_view text) {
  json::parse_options limits;
  limits.allow_invalid_utf8 = true;
  boost::system::error_code error;
  const json::value value = json::parse(text, error, {}, limits);
  if (error || !value.is_object()) return;
  base::LinkStatus status;
  link::read_facts(value.get_object(), status);
  const std::string told = base::link_status_text(status);
  fuzz::require(told.size() < 2000, "a status is small");
  base::parse_link_status(told);
  for (const std::string& path : link::read_lost(value.get_object())) {
    fuzz::require(path.starts_with("/workspace") || path.starts_with("/home/user"),
                  "a lost path is below a mount");
    fuzz::require(path.find("/../") == std::string::npos && !path.ends_with("/.."),
                  "a lost path stays below its mount");
  }
}

// From the worker, which speaks with a hostile machine, to the keeper.
void keeper_line(std::string_view text) {
  std::array<int, 2> ends{};
  base::check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), "a pair");
  const base::Fd ours(ends[0]);
  const base::Fd theirs(ends[1]);
  if (text.empty() || ::send(theirs.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0) return;
  const auto message = link::receive_line(ours.get());
  fuzz::require(message.has_value(), "a message came");
}

void provider_json(std::string_view text) {
  const json::value value = link::parse_answer(text);
  const link::JsonObject& object = link::object_in(value, "it");
  for (const auto& [name, field] : object) {
    fuzz::refused([&, &key = name] { link::text_field(object, key); });
    fuzz::refused([&, &key = name] { link::number_field(object, key, 0); });
    fuzz::refused([&, &key = name] { link::flag_field(object, key, false); });
    fuzz::refused([&, &key = name] { link::array_field(object, key); });
    fuzz::refused([&, &key = name] {
      const std::string id = link::id_field(object, key);
      fuzz::require(id.find_first_of("/?#\r\n .") == std::string::npos, "an id fits in a URL");
    });
    fuzz::refused([&, &key = name] {
      fuzz::require(link::labels_field(object, key).size() <= 64, "labels have their limit");
    });
  }
  fuzz::require(link::printable(text).size() <= 303, "words for a message are cut");
}

void text_stream(fuzz::Script& script) {
  base::TextDecoder decoder(base::TextDirection::from_program);
  std::string bytes;
  while (!script.over()) {
    const std::string_view piece = script.piece();
    const size_t before = bytes.size();
    decoder.decode(piece, bytes);
    fuzz::require(bytes.size() - before <= piece.size() + 2 * base::kTextLineBytes,
                  "no more comes out than went in");
  }
}

void relay(fuzz::Script& script) {
  base::RelayReader reader;
  size_t in = 0;
  size_t out = 0;
  while (!script.over()) {
    const std::string_view piece = script.piece();
    in += piece.size();
    reader.add(piece);
    while (const auto frame = reader.next()) {
      out += base::kRelayHeaderBytes + frame->payload.size();
      if (const auto place = base::read_place(frame->payload))
        fuzz::require(base::read_place(base::place_text(*place)) == place, "a place stays itself");
      const auto message = base::read_line_message(frame->payload);
      if (message)
        fuzz::require(base::read_line_message(base::line_text(*message)).has_value(),
                      "a message stays one");
    }
  }
  fuzz::require(out + reader.take_rest().size() == in, "no byte is lost or doubled");
}

void origin(std::string_view text) {
  const link::Origin parsed = link::parse_origin(text, true);
  fuzz::require(!parsed.host.empty() && parsed.port != 0, "an origin has a host and a port");
  // It becomes a part of requests.
  const std::string all = parsed.authority() + parsed.prefix;
  fuzz::require(all.find_first_of(std::string_view("\r\n \0", 4)) == std::string::npos,
                "an origin fits in a request");
  link::percent_encode(text);
}

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  fuzz::Script script(data, size);
  const size_t what = script.below(10);
  const std::string_view text = script.rest();
  fuzz::refused([&] {
    if (what == 0) http_head(text);
    if (what == 1) greeting(text);
    if (what == 2) keeper_line(text);
    if (what == 3) provider_json(text);
    if (what == 4) text_stream(script);
    if (what == 5) relay(script);
    if (what == 6) origin(text);
    if (what == 7) base::parse_link_status(std::string(text));
    if (what == 8) link::parse_retry_after(text, 1'700'000'000);
    if (what == 9) {
      const Error reason = base::mux_reset_reason(text);
      fuzz::require(reason.message().size() <= 2000, "a reason is cut");
    }
  });
  return 0;
}
