#include "base/wire/network_relay.h"

#include <catch2/catch.hpp>

#include "base/wire/command_mark.h"
#include "thrown_code.h"

namespace moorage::base {
namespace {

TEST_CASE("Messages about a network arrive whole, whatever the pieces") {
  const std::string bytes = relay_frame(RelayKind::line, "listen 198.18.0.1 443") +
                            relay_frame(RelayKind::datagram, std::string(300, 'q')) +
                            relay_frame(RelayKind::place, "198.18.0.1 443") + "the rest";
  for (const size_t piece : {1U, 2U, 7U, 1000U}) {
    RelayReader reader;
    std::vector<RelayFrame> frames;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      reader.add(bytes.substr(at, piece));
      while (frames.size() < 3) {
        auto frame = reader.next();
        if (!frame) break;
        frames.push_back(std::move(*frame));
      }
    }
    REQUIRE(frames.size() == 3);
    CHECK(frames[0].payload == "listen 198.18.0.1 443");
    CHECK(frames[1].kind == RelayKind::datagram);
    CHECK(frames[1].payload == std::string(300, 'q'));
    CHECK(frames[2].kind == RelayKind::place);
    CHECK(reader.take_rest() == "the rest");
  }
}

TEST_CASE("A message of no known kind is refused at its first byte") {
  for (const char kind : {'\0', '\4', '{'}) {
    RelayReader reader;
    reader.add(std::string(1, kind));
    CHECK(code_thrown_by([&] { reader.next(); }) == Code::corrupted);
  }
}

TEST_CASE(
    "A connection may lead to an address of the range, or to the resolver, and nowhere else") {
  CHECK(read_place("198.18.0.1 443") == RelayPlace{"198.18.0.1", 443});
  CHECK(read_place("198.19.255.255 1") == RelayPlace{"198.19.255.255", 1});
  CHECK(read_place("127.0.0.53 53") == RelayPlace{"127.0.0.53", 53});
  for (const char* text : {"127.0.0.1 53", "127.0.0.53 54", "198.17.255.255 80", "198.20.0.0 80",
                           "198.18.0.1 0", "198.18.0.1 65536", "198.18.0.1", "198.18.0.1 443 1",
                           "::1 80", "", " ", "listen 198.18.0.1 443"})
    CHECK_FALSE(read_place(text));
  CHECK(place_text({"198.18.0.1", 443}) == "198.18.0.1 443");
}

TEST_CASE("A command has an address of its own, and nothing else has one of those") {
  for (const char* tag : {"ex_1", "ex_4194302", "ex_18446744073709551615"}) {
    const uint32_t mark = command_mark(tag);
    CHECK(mark != 0);
    CHECK(mark_of(marked_address(mark)) == mark);
  }
  CHECK(marked_address(command_mark("ex_1")).str() == "127.64.0.2");
  CHECK(command_mark("ex_1") != command_mark("ex_2"));
  for (const char* tag : {"", "ex_", "ex_x", "ex_1x", "hook_1", "ex_18446744073709551616"})
    CHECK(command_mark(tag) == 0);
  CHECK(marked_address(0).str() == "127.0.0.1");
  for (const char* address : {"127.0.0.1", "127.63.255.255", "127.128.0.0", "198.18.0.1", "::1"})
    CHECK(mark_of(*parse_address(address)) == 0);
}

}  // namespace
}  // namespace moorage::base
