#include "base/wire/mux.h"

#include <catch2/catch.hpp>
#include <deque>
#include <random>

#include "base/little_endian.h"
#include "thrown_code.h"

using namespace moorage;
using base::Mux;
using base::MuxFrame;
using base::MuxKind;

namespace {

std::string frame(uint8_t kind, uint32_t channel, std::string_view payload) {
  std::string bytes;
  base::append_number(bytes, static_cast<uint32_t>(kind));
  base::append_number(bytes, channel);
  base::append_number(bytes, static_cast<uint32_t>(payload.size()));
  return bytes.append(payload);
}

std::string credit(uint32_t bytes) {
  std::string payload;
  base::append_number(payload, bytes);
  return payload;
}

// Feeds all bytes; returns "kind:channel:payload" of each frame.
std::vector<std::string> feed(Mux& mux, std::string_view bytes) {
  std::vector<std::string> seen;
  while (auto frame = mux.next(bytes)) {
    seen.push_back(std::to_string(static_cast<int>(frame->kind)) + ":" +
                   std::to_string(frame->channel) + ":" + std::string(frame->payload));
  }
  return seen;
}

void move_output(Mux& from, Mux& to) {
  feed(to, from.output());
  from.output().clear();
}

constexpr auto kCorrupted = base::Code::corrupted;

}  // namespace

TEST_CASE("Frames arrive whole and in order, wherever the stream is split") {
  std::string stream = frame(1, 1, "{\"what\":\"http\"}") +
                       frame(2, 1, std::string(64 << 10, 'x')) + frame(1, 7, "{}") +
                       frame(2, 7, "short") + frame(3, 1, credit(9)) + frame(4, 1, "") +
                       frame(5, 7, "{\"code\":\"io\"}");
  Mux whole(Mux::Side::answerer);
  const auto expected = feed(whole, stream);
  REQUIRE(expected.size() == 7);
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Mux mux(Mux::Side::answerer);
    std::vector<std::string> seen;
    const size_t most = round % 3 == 0 ? 3 : 1 + random() % 40'000;
    for (std::string_view left = stream; !left.empty();) {
      const size_t size = std::min<size_t>(left.size(), 1 + random() % most);
      for (auto& one : feed(mux, left.substr(0, size))) seen.push_back(one);
      left.remove_prefix(size);
    }
    REQUIRE(seen == expected);
    CHECK(mux.channels() == 1);  // 1 still has this side's half
  }
}

TEST_CASE("Both sides pass any amount of data through a window of fixed size") {
  Mux here(Mux::Side::opener);
  Mux there(Mux::Side::answerer);
  const uint32_t channel = here.open("{}");
  std::string sent(3 << 20, '\0');
  std::mt19937 random(3);
  for (char& c : sent) c = static_cast<char>(random());
  std::string received;
  std::string_view left = sent;
  while (received.size() < sent.size()) {
    const size_t size = std::min(left.size(), here.room(channel));
    here.send(channel, left.substr(0, size));
    left.remove_prefix(size);
    REQUIRE(here.output().size() < base::kMuxWindow + 4096);
    std::string_view bytes = here.output();
    while (auto frame = there.next(bytes)) {
      if (frame->kind != MuxKind::data) continue;
      received += frame->payload;
      there.consumed(channel, frame->payload.size());
    }
    here.output().clear();
    move_output(there, here);
  }
  CHECK(received == sent);
  here.end(channel);
  CHECK(here.room(channel) == 0);
  move_output(here, there);
  there.send(channel, "still open in this direction");
  there.end(channel);
  CHECK_FALSE(there.is_open(channel));
  move_output(there, here);
  CHECK_FALSE(here.is_open(channel));
}

TEST_CASE("What nobody consumed gets no new credit, and a grant widens the window") {
  Mux here(Mux::Side::opener);
  Mux there(Mux::Side::answerer);
  const uint32_t channel = here.open("{}");
  here.send(channel, std::string(here.room(channel), 'x'));
  move_output(here, there);
  CHECK(there.output().empty());
  CHECK(here.room(channel) == 0);
  there.grant(channel, base::kMuxPackWindow - base::kMuxWindow);
  move_output(there, here);
  CHECK(here.room(channel) == base::kMuxPackWindow - base::kMuxWindow);
}

TEST_CASE("A frame that breaks a rule ends the stream, before its payload is awaited") {
  const std::string open = frame(1, 5, "{}");
  std::vector<std::string> hostile{
      frame(0, 5, "x"),
      frame(6, 5, "x"),
      frame(2, 0, "x"),                          // channel 0
      frame(2, 6, "x"),                          // never opened
      frame(1, 5, "{}"),                         // a number twice
      frame(1, 4, "{}"),                         // a number that falls
      frame(1, 6, ""),                           // an open without a request
      frame(2, 5, ""),                           // data without bytes
      frame(3, 5, "123"),                        // a credit of 3 bytes
      frame(3, 5, credit(0)),                    // of nothing
      frame(3, 5, credit(base::kMuxMaxWindow)),  // beyond the limit
      frame(4, 5, "x"),                          // an end with a payload
      frame(4, 5, "") + frame(4, 5, ""),         // two ends
      frame(4, 5, "") + frame(2, 5, "x"),        // data after the end
      frame(2, 5, std::string((64 << 10) + 1, 'x')).substr(0, 12),
  };
  std::string reserved = frame(2, 5, "x");
  reserved[2] = 1;
  hostile.push_back(reserved);
  std::string flood;
  for (int i = 0; i < 5; ++i) flood += frame(2, 5, std::string(64 << 10, 'x'));
  hostile.push_back(flood);  // beyond the window
  std::string many;
  for (uint32_t i = 6; i < 6 + base::kMuxMaxChannels; ++i) many += frame(1, i, "{}");
  hostile.push_back(many);
  for (size_t i = 0; i < hostile.size(); ++i) {
    CAPTURE(i);
    Mux mux(Mux::Side::answerer);
    feed(mux, open);
    CHECK(code_thrown_by([&] { feed(mux, hostile[i]); }) == kCorrupted);
  }
  Mux opener(Mux::Side::opener);
  CHECK(code_thrown_by([&] { feed(opener, open); }) == kCorrupted);
}

TEST_CASE("After a reset, frames that were on their way are skipped") {
  Mux here(Mux::Side::opener);
  Mux there(Mux::Side::answerer);
  const uint32_t channel = here.open("{}");
  move_output(here, there);
  there.send(channel, "late");
  there.end(channel);
  here.reset(channel, Error(Code::conflict, "not now \"please\""));
  CHECK(here.channels() == 0);
  CHECK(feed(here, there.output()).empty());
  std::string_view bytes = here.output();
  const auto frame = there.next(bytes);
  REQUIRE(frame);
  REQUIRE(frame->kind == MuxKind::reset);
  const Error reason = base::mux_reset_reason(frame->payload);
  CHECK(reason.code() == Code::conflict);
  CHECK(reason.message() == "not now \"please\"");
  CHECK(there.channels() == 0);
  CHECK(here.room(channel) == 0);
  here.send(channel, "x");
  here.consumed(channel, 1);
  here.end(channel);
  CHECK(base::mux_reset_reason("[[[[[[[").code() == Code::internal);
}

TEST_CASE("An opener has at most 2048 channels at the same time") {
  Mux mux(Mux::Side::opener);
  for (size_t i = 0; i < base::kMuxMaxChannels; ++i) mux.open("{}");
  CHECK(code_thrown_by([&] { mux.open("{}"); }) == Code::resource_exhausted);
}
