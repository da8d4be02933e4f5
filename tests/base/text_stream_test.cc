#include "base/wire/text_stream.h"

#include <catch2/catch.hpp>
#include <random>

#include "base/error.h"

namespace moorage::base {
namespace {

std::string random_bytes(size_t size) {
  std::mt19937 random(7);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

TextDecoder decoder() { return TextDecoder(TextDirection::from_program); }

TEST_CASE("bytes pass a text stream unchanged, in pieces of any size", "[text_stream]") {
  const std::string sent = random_bytes(300'001);
  std::mt19937 random(11);
  TextEncoder encoder(TextDirection::from_program);
  TextDecoder reader = decoder();
  std::string received;
  for (size_t at = 0; at < sent.size();) {
    const size_t size = 1 + random() % 60'000;
    const std::string text = encoder.encode(std::string_view(sent).substr(at, size));
    at += size;
    for (size_t begin = 0; begin < text.size();) {
      const size_t cut = 1 + random() % 5'000;
      reader.decode(std::string_view(text).substr(begin, cut), received);
      begin += cut;
    }
  }
  CHECK_FALSE(reader.ended());
  reader.decode(encoder.end(), received);
  CHECK(reader.ended());
  CHECK(received == sent);
}

TEST_CASE("marks, echoes and other lines in a text stream are skipped", "[text_stream]") {
  TextEncoder encoder(TextDirection::from_program);
  TextEncoder echoed(TextDirection::to_program);
  TextDecoder reader = decoder();
  std::string received;
  const std::string line = encoder.encode("hello");
  reader.decode("\x01\x01\x01" + line.substr(0, 9) + "\x02\x02\x02" + line.substr(9), received);
  reader.decode(echoed.encode("input"), received);
  reader.decode("bash: warning: setlocale\n> not ours\n", received);
  reader.decode(std::string(10 << 20, 'x') + "\n", received);
  reader.decode(encoder.encode(" again"), received);
  CHECK(received == "hello again");
}

TEST_CASE("a lost, doubled or damaged line of a text stream is an error", "[text_stream]") {
  TextEncoder encoder(TextDirection::from_program);
  const std::string first = encoder.encode("one");
  const std::string second = encoder.encode("two");
  std::string received;
  const auto refused = [&](const std::string& text) {
    TextDecoder reader = decoder();
    CHECK_THROWS_AS(reader.decode(text, received), Error);
  };
  refused(second);
  refused(first + first);
  refused(first + first.substr(0, 14) + "?" + first.substr(15));
  refused(">000000000000:b*25l\n");
  refused(">000000000000:b25\n");
  refused(first + second + encoder.end() + encoder.end());
  refused(first + encoder.end());
}

}  // namespace
}  // namespace moorage::base
