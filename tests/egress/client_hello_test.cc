#include "egress/client_hello.h"

#include <catch2/catch.hpp>
#include <random>

#include "hello.h"

using namespace moorage;
using egress::ClientHello;
using egress_test::hello;

TEST_CASE("the name is read from the hello of TLS 1.2 and 1.3") {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    ClientHello reader;
    CHECK(reader.add(hello({"api.example.com", version})) == ClientHello::State::complete);
    CHECK(reader.server_name() == "api.example.com");
  }
}

TEST_CASE("the hello may come a byte at a time, and in small records") {
  for (const size_t fragment : {size_t{512}, size_t{16384}}) {
    const std::string bytes =
        hello({std::string(200, 'a') + ".example.com", TLS1_3_VERSION, fragment});
    ClientHello reader;
    for (size_t at = 0; at + 1 < bytes.size(); ++at)
      REQUIRE(reader.add(bytes.substr(at, 1)) == ClientHello::State::incomplete);
    CHECK(reader.add(bytes.substr(bytes.size() - 1)) == ClientHello::State::complete);
    CHECK(reader.server_name()->size() == 212);
  }
}

TEST_CASE("a hello without a name is complete and has none") {
  ClientHello reader;
  CHECK(reader.add(hello({})) == ClientHello::State::complete);
  CHECK_FALSE(reader.server_name());
}

TEST_CASE("bytes other than TLS are invalid") {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), std::string("SSH-2.0-OpenSSH\r\n"),
        std::string(4096, '\0'), std::string("\x16\x03\x01\xff\xff") + std::string(70'000, 'x')}) {
    ClientHello reader;
    CHECK(reader.add(bytes) == ClientHello::State::invalid);
    CHECK(reader.add("more") == ClientHello::State::invalid);
  }
}

TEST_CASE("a hello that never ends is invalid at its limit") {
  ClientHello reader;
  ClientHello::State state = ClientHello::State::incomplete;
  const std::string header("\x16\x03\x01\x00\x04\x01\x00\xff\xff", 9);
  for (int i = 0; i < 100'000 && state == ClientHello::State::incomplete; ++i)
    state = reader.add(i == 0 ? header : std::string("\x16\x03\x01\x00\x04xxxx", 9));
  CHECK(state == ClientHello::State::invalid);
}

TEST_CASE("damaged hellos are read without harm") {
  std::mt19937 random(11);
  const std::string whole = hello({"api.example.com"});
  for (int round = 0; round < 3'000; ++round) {
    std::string bytes = whole;
    for (unsigned change = random() % 6 + 1; change > 0; --change)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    ClientHello reader;
    reader.add(bytes);
  }
}
