#include "base/net/ip_address.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>

#include "thrown_code.h"

using namespace moorage;
using base::parse_address;

namespace {

bool is_public(const char* text) {
  const auto address = parse_address(text);
  REQUIRE(address);
  return base::not_public(*address).empty();
}

}  // namespace

TEST_CASE("addresses are read only in their standard spellings") {
  CHECK(parse_address("192.0.2.7")->str() == "192.0.2.7");
  CHECK(parse_address("2001:DB8::7")->str() == "2001:db8::7");
  for (std::string_view text :
       {std::string_view("127.1"), std::string_view("0x7f.0.0.1"), std::string_view("2130706433"),
        std::string_view("0177.0.0.1"), std::string_view(""), std::string_view("1.2.3.4 "),
        std::string_view("1.2.3.4\0x", 9), std::string_view("[::1]"), std::string_view("::g"),
        std::string_view("fe80::1%lo")}) {
    INFO(text);
    CHECK_FALSE(parse_address(text));
  }
}

TEST_CASE("a socket address and back is the same address") {
  for (const char* text : {"192.0.2.7", "2001:db8::7"}) {
    const auto address = *parse_address(text);
    sockaddr_storage socket;
    CHECK(address.to_socket(443, socket) > 0);
    CHECK(base::address_of(reinterpret_cast<const sockaddr&>(socket)) == address);
  }
  sockaddr unknown{};
  unknown.sa_family = AF_UNIX;
  CHECK_FALSE(base::address_of(unknown));
}

TEST_CASE("public addresses are public") {
  for (const char* text :
       {"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
        "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255",
        "172.32.0.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0",
        "223.255.255.255", "140.82.121.4", "2606:4700::1111", "2a00:1450::1", "2001:4860::8888",
        "2001:200::1", "2003::1", "3ffe::1"}) {
    INFO(text);
    CHECK(is_public(text));
  }
}

TEST_CASE("addresses of this host, its networks and its cloud are not public") {
  for (const char* text :
       {"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.0", "100.100.100.200",
        "100.127.255.255", "127.0.0.1", "127.255.255.255", "169.254.0.0", "169.254.169.254",
        "169.254.170.2", "172.16.0.0", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1",
        "192.168.0.0", "192.168.255.255", "198.18.0.1", "198.19.255.255", "198.51.100.1",
        "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
        "168.63.129.16"}) {
    INFO(text);
    CHECK_FALSE(is_public(text));
  }
}

TEST_CASE("IPv6 addresses that are local or embed another address are not public") {
  for (const char* text :
       {"::", "::1", "::2", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:1.1.1.1",
        "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1", "2001:1::1",
        "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::1", "3fff::1",
        "4000::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fdff::1", "fe80::1", "febf::1", "fec0::1",
        "ff02::1"}) {
    INFO(text);
    CHECK_FALSE(is_public(text));
  }
}

TEST_CASE("a range contains exactly the addresses with its prefix") {
  const auto range = base::parse_range("172.16.0.0/12");
  CHECK(base::contains(range, *parse_address("172.31.255.255")));
  CHECK_FALSE(base::contains(range, *parse_address("172.32.0.0")));
  CHECK_FALSE(base::contains(range, *parse_address("::ffff:172.16.0.1")));
  CHECK(base::contains(base::parse_range("0.0.0.0/0"), *parse_address("9.9.9.9")));
  CHECK(base::contains(base::parse_range("fd00::/9"), *parse_address("fd7f::1")));
  CHECK_FALSE(base::contains(base::parse_range("fd00::/9"), *parse_address("fd80::1")));
  CHECK(base::contains(base::parse_range("10.1.2.3"), *parse_address("10.1.2.3")));
  for (const char* text : {"", "/8", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/8x",
                           "fd00::/129", "host/8"}) {
    INFO(text);
    CHECK(code_thrown_by([&] { base::parse_range(text); }) == Code::invalid_argument);
  }
}
