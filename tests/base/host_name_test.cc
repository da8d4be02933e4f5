#include "base/net/host_name.h"

#include <catch2/catch.hpp>

#include "thrown_code.h"

using namespace moorage;
using base::host_name;
using base::host_name_on_wire;

TEST_CASE("a host has one spelling, however it is written") {
  CHECK(host_name("GitHub.COM") == "github.com");
  CHECK(host_name("github.com.") == "github.com");
  CHECK(host_name("B\u00dcCHER.example") == "xn--bcher-kva.example");
  CHECK(host_name("b\u00fccher.example") == "xn--bcher-kva.example");
  CHECK(host_name("bu\u0308cher.example") == "xn--bcher-kva.example");
  CHECK(host_name("xn--bcher-kva.example") == "xn--bcher-kva.example");
  // UTS 46 maps these: full-width letters and the ideographic full stop.
  CHECK(host_name("\uff47ithub\u3002com") == "github.com");
  CHECK(host_name("_acme.example.com") == "_acme.example.com");
  CHECK(host_name("localhost") == "localhost");
}

TEST_CASE("letters that only look like others are another host") {
  CHECK(host_name("g\u0456thub.com") != "github.com");  // a Cyrillic i
  CHECK(host_name("g\u0456thub.com").starts_with("xn--"));
}

TEST_CASE("invalid host names are refused with the reason") {
  for (const char* text : {"", ".", "..", ".com", "a..b", "a b", "a/b", "https://github.com",
                           "user@github.com", "github.com:443", "[::1]", "::1", "a\nb", "a*b",
                           "*.github.com", "a%2eb", "a\\b", "-\u00fc.example"}) {
    INFO(text);
    CHECK(code_thrown_by([&] { host_name(text); }) == Code::invalid_argument);
  }
  CHECK(code_thrown_by([] { host_name(std::string(64, 'a') + ".com"); }) == Code::invalid_argument);
  std::string longest = std::string(63, 'a') + "." + std::string(63, 'b') + "." +
                        std::string(63, 'c') + "." + std::string(61, 'd');
  CHECK(host_name(longest) == longest);
  CHECK(code_thrown_by([&] { host_name(longest + "d"); }) == Code::invalid_argument);
}

TEST_CASE("an address is not a host name, in none of its spellings") {
  for (const char* text :
       {"127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1",
        "017700000001", "0x7F.1", "0X7f000001", "127.0.0.1.", "127.0.0.0x1", "0", "0x", "1.2.3.4.5",
        "256.256.256.256", "\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021"}) {
    INFO(text);
    CHECK(code_thrown_by([&] { host_name(text); }) == Code::invalid_argument);
    CHECK_FALSE(host_name_on_wire(text));
  }
  CHECK(host_name("1.2.3.4.example") == "1.2.3.4.example");
  CHECK(host_name("0x7f.com") == "0x7f.com");
}

TEST_CASE("from the wire only ASCII is a host name") {
  CHECK(host_name_on_wire("API.Example.com.") == "api.example.com");
  for (std::string_view text :
       {std::string_view(""), std::string_view("."), std::string_view("a..b"),
        std::string_view("a.com.."), std::string_view("b\xc3\xbc.com"),
        std::string_view("a\0b.com", 7), std::string_view("a/b.com"), std::string_view("a b.com"),
        std::string_view("a:1"), std::string_view("user@a.com"), std::string_view("\x7f.com")}) {
    INFO(text);
    CHECK_FALSE(host_name_on_wire(text));
  }
}
