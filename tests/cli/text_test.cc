#include "cli/output/text.h"

#include <catch2/catch.hpp>

#include "base/error.h"

using namespace moorage::cli;
using moorage::base::Error;

TEST_CASE("sizes are short and stay below four digits") {
  CHECK(format_size(0) == "0");
  CHECK(format_size(812) == "812");
  CHECK(format_size(1023) == "1023");
  CHECK(format_size(65536) == "64K");
  CHECK(format_size(412ull << 20) == "412M");
  CHECK(format_size((9ull << 30) + (400ull << 20)) == "9.4G");
  CHECK(format_size(4ull << 30) == "4G");
  CHECK(format_size((1ull << 20) - 1) == "1M");
  CHECK(format_size(~0ull) == "16E");
}

TEST_CASE("ages name the two units that matter") {
  CHECK(format_age(-5) == "0s");
  CHECK(format_age(41'000) == "41s");
  CHECK(format_age(5 * 60'000) == "5m");
  CHECK(format_age(134 * 60'000) == "2h14m");
  CHECK(format_age(3 * 3'600'000) == "3h");
  CHECK(format_age(31 * 3'600'000ll) == "31h");
  CHECK(format_age(72 * 3'600'000ll) == "3d");
  CHECK(format_age_long(41'000) == "41 s");
  CHECK(format_age_long(120'000) == "2 min");
  CHECK(format_took(6) == "6 ms");
  CHECK(format_took(2600) == "2.6 s");
  CHECK(format_took(9000) == "9 s");
  CHECK(format_seconds(0) == "0s");
  CHECK(format_seconds(5400) == "1h30m");
  CHECK(format_seconds(2 * 86'400 + 61) == "2d1m1s");
  CHECK(count_of(1, "entry") == "1 entry");
  CHECK(count_of(2, "entry") == "2 entries");
  CHECK(count_of(0, "sandbox") == "0 sandboxes");
  CHECK(format_took(232'000) == "3m52s");
}

TEST_CASE("durations are read as people write them, ambiguous ones are refused") {
  CHECK(parse_duration_ms("5m", "--timeout") == 300'000);
  CHECK(parse_duration_ms("500ms", "--timeout") == 500);
  CHECK(parse_duration_ms("90", "--timeout") == 90'000);
  CHECK(parse_duration_ms("1h30m", "--timeout") == 5'400'000);
  CHECK(parse_duration_ms("1.5s", "--timeout") == 1500);
  for (const char* bad : {"", "m", "1h30", "-5s", "5 m", "5x", "0", "1e300h"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse_duration_ms(bad, "--timeout"), Error);
  }
}

TEST_CASE("a refused value names its option and an example") {
  try {
    parse_size("lots", "--memory");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.message() == "--memory: 'lots' is not valid");
    CHECK(error.hint() == "write it like 512M, 4G or 1.5G");
  }
}

TEST_CASE("sizes are read with and without a unit") {
  CHECK(parse_size("4G", "m") == 4ull << 30);
  CHECK(parse_size("4GiB", "m") == 4ull << 30);
  CHECK(parse_size("1.5g", "m") == 3ull << 29);
  CHECK(parse_size("1048576", "m") == 1048576);
  for (const char* bad : {"", "G", "4X", "4Gb!", "-1", "0"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse_size(bad, "m"), Error);
  }
}

TEST_CASE("UTC times are read with and without milliseconds") {
  CHECK(parse_utc("1970-01-01T00:00:01Z") == 1000);
  CHECK(parse_utc("2026-11-21T09:12:04.512Z") == 1795252324512);
  CHECK_FALSE(parse_utc("yesterday"));
  CHECK_FALSE(parse_utc(""));
}

TEST_CASE("untrusted text cannot control the terminal") {
  CHECK(printable("plain ünïcode 日本") == "plain ünïcode 日本");
  CHECK(printable("\x1b[31mred\a") == "\\x1b[31mred\\x07");
  CHECK(printable("a\nb\tc\rd") == "a\\nb\\tc\\rd");
  CHECK(printable("\xc2\x9b"
                  "31m") == "\\u{009b}31m");  // C1: CSI in one character
  CHECK(printable("abc\xe2\x80\xae"
                  "gpj") == "abc\\u{202e}gpj");         // right-to-left override
  CHECK(printable("x\xe2\x81\xa6y") == "x\\u{2066}y");  // bidi isolate
  CHECK(printable("zero\xe2\x80\x8bwidth") == "zero\\u{200b}width");
  CHECK(printable("\xff\xc3") == "\\xff\\xc3");           // not UTF-8
  CHECK(printable("\xc0\x9b") == "\\xc0\\x9b");           // overlong form of ESC
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // a surrogate
  CHECK(printable(std::string_view("a\0b", 3)) == "a\\x00b");
  CHECK(printable_lines("a\n\tb\x1b") == "a\n\tb\\x1b");
}

TEST_CASE("widths count what the terminal shows") {
  CHECK(display_width("abc") == 3);
  CHECK(display_width("日本") == 4);
  CHECK(display_width("e\xcc\x81") == 1);
  CHECK(shorten("abcdef", 6) == "abcdef");
  CHECK(shorten("abcdef", 4) == "abc…");
  CHECK(shorten("日本語", 4) == "日…");
}

TEST_CASE("a shown command line can be typed again") {
  CHECK(join_command({"npm", "test"}) == "npm test");
  CHECK(join_command({"sh", "-c", "echo 'a b'"}) == "sh -c 'echo '\\''a b'\\'''");
  CHECK(join_command({"x", ""}) == "x ''");
  CHECK(join_command({"a\\b"}) == "'a\\b'");
  CHECK(join_command({"ü"}) == "'ü'");
  CHECK(join_command({"a\nb"}) == "$'a\\nb'");
  CHECK(join_command({"it's\\ \x01"
                      "2"}) == "$'it\\'s\\\\ \\0012'");
  CHECK(join_command({"\xff"}) == "$'\\377'");
  CHECK(join_command({"\u202e"}) == "$'\\342\\200\\256'");
}

TEST_CASE("base64 survives a round trip") {
  for (const std::string text : {"", "a", "ab", "abc", "\xff\xfe\x00\x01"}) {
    CHECK(base64_decode(base64_encode(text)) == text);
  }
  CHECK(base64_encode("hello") == "aGVsbG8=");
  CHECK_THROWS_AS(base64_decode("a*b"), Error);
}
