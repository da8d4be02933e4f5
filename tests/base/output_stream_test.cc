#include "base/wire/output_stream.h"

#include <catch2/catch.hpp>
#include <random>
#include <utility>
#include <vector>

#include "temporary_directory.h"

using namespace moorage;
using base::RecordKind;
using base::RecordParser;
using Records = std::vector<std::pair<RecordKind, std::string>>;

namespace {

RecordParser collect(Records& records) {
  return RecordParser([&records](RecordKind kind, std::string_view payload) {
    records.emplace_back(kind, payload);
  });
}

}  // namespace

TEST_CASE("a record's bytes match the format") {
  CHECK(base::encode_record(RecordKind::standard_error, std::string(258, 'x')).substr(0, 9) ==
        std::string("\x02\0\0\0\0\0\x01\x02x", 9));
  CHECK(base::encode_record(RecordKind::keep_alive, "") == std::string("\x04\0\0\0\0\0\0\0", 8));
}

TEST_CASE("records arrive whole, however the stream is split") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    Records sent;
    std::string stream;
    for (unsigned i = 0; i < random() % 20; ++i) {
      std::string payload(random() % (random() % 4 ? 20 : 20'000), '\0');
      for (char& c : payload) c = static_cast<char>(random());
      sent.emplace_back(static_cast<RecordKind>(1 + random() % 8), payload);
      stream += base::encode_record(sent.back().first, payload);
    }
    Records received;
    RecordParser parser = collect(received);
    const size_t largest = 1 + random() % (round % 2 ? 10 : 50'000);
    for (size_t at = 0; at < stream.size();) {
      const size_t size = std::min<size_t>(1 + random() % largest, stream.size() - at);
      parser.feed(std::string_view(stream).substr(at, size));
      at += size;
    }
    REQUIRE(received == sent);
    REQUIRE_FALSE(parser.in_the_middle());
  }
}

TEST_CASE("the callback runs as soon as a record's last byte arrives") {
  Records received;
  RecordParser parser = collect(received);
  const std::string record = base::encode_record(RecordKind::terminal, "abc");
  parser.feed(record.substr(0, record.size() - 1));
  CHECK(received.empty());
  CHECK(parser.in_the_middle());
  parser.feed(record.substr(record.size() - 1));
  CHECK(received == Records{{RecordKind::terminal, "abc"}});
}

TEST_CASE("an invalid record is refused at its header") {
  for (const std::string& header :
       {std::string("\0\0\0\0\0\0\0\0", 8), std::string("\x09\0\0\0\0\0\0\0", 8),
        std::string("\x01\x01\0\0\0\0\0\0", 8), std::string("\x01\0\0\x01\0\0\0\0", 8),
        std::string("\x01\0\0\0\x01\0\0\x01", 8), std::string("\x01\0\0\0\xff\xff\xff\xff", 8),
        std::string("HTTP/1.1")}) {
    Records received;
    RecordParser parser = collect(received);
    CHECK(test::code_thrown_by([&] { parser.feed(header); }) == "corrupted");
    CHECK(received.empty());
  }
}

TEST_CASE("the largest record passes and a larger one is refused") {
  Records received;
  RecordParser parser = collect(received);
  parser.feed(base::encode_record(RecordKind::standard_output, std::string(16 << 20, 'x')));
  CHECK(received.size() == 1);
  CHECK(test::code_thrown_by([] {
          base::encode_record(RecordKind::standard_output, std::string((16 << 20) + 1, 'x'));
        }) == "internal");
}
