// Much at once goes through the kernel (egress/siphon.h); nobody may notice.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>

#include "base/digest.h"
#include "inside.h"

using namespace moorage;
using namespace moorage::egress_test;

namespace {

constexpr size_t kMuch = 64 << 20;
constexpr int kFullMs = 300;  // a socket that takes nothing for so long is full

struct Stalled {
  const std::string bytes = base::random_hex(kMuch / 2);
  std::atomic<size_t> sent = 0;
  std::atomic<bool> full = false;

  // Sends everything, without waiting for a request.
  void send_to(int socket) {
    while (sent < bytes.size()) {
      pollfd room{socket, POLLOUT, 0};
      if (poll(&room, 1, kFullMs) == 0) {
        full = true;
        continue;
      }
      const ssize_t size =
          send(socket, bytes.data() + sent, bytes.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (size < 0 && errno != EAGAIN) return;
      if (size > 0) sent += static_cast<size_t>(size);
    }
  }
  void wait_until_full() const {
    while (!full && sent < bytes.size()) usleep(1000);
  }
};

std::string read_exactly(const Fd& socket, size_t size) {
  std::string all;
  while (all.size() < size) {
    const std::string piece = read_some(socket);
    if (piece.empty() || piece == "(reset)" || piece == "(nothing came)") break;
    all += piece;
  }
  return all;
}

}  // namespace

TEST_CASE("a client that reads late gets everything in order, and then the end") {
  Network network;
  Stalled stalled;
  FakeHost host("127.0.0.1", 5432, [&](int socket) { stalled.send_to(socket); });
  network.dns.set("db.example.com", {"127.0.0.1"});
  network.allow("db.example.com:5432");
  network.apply();
  network.inside.run([&] {
    const Fd socket = dial(resolve("db.example.com").address, 5432);
    REQUIRE(socket);
    stalled.wait_until_full();
    CHECK(stalled.sent < stalled.bytes.size());
    const std::string got = read_all(socket);
    CHECK(got.size() == stalled.bytes.size());
    CHECK(base::sha256_hex(got) == base::sha256_hex(stalled.bytes));
  });
  CHECK(network.outside.use().bytes_in == kMuch);
}

TEST_CASE("questions and answers follow much at once, over and over") {
  Network network;
  FakeHost host("127.0.0.1", 5432, [](int socket) {
    char word[5];
    const std::string much = base::random_hex(1 << 20);
    while (recv(socket, word, sizeof word, MSG_WAITALL) == sizeof word) {
      const std::string_view answer = word[0] == 'm' ? std::string_view(much) : "small";
      if (send(socket, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return;
    }
  });
  network.dns.set("db.example.com", {"127.0.0.1"});
  network.allow("db.example.com:5432");
  network.apply();
  network.inside.run([&] {
    const Fd socket = dial(resolve("db.example.com").address, 5432);
    REQUIRE(socket);
    for (int i = 0; i < 10; ++i) {
      base::write_all(socket.get(), "much.");
      REQUIRE(read_exactly(socket, 2 << 20).size() == 2 << 20);
      base::write_all(socket.get(), "less.");
      REQUIRE(read_exactly(socket, 5) == "small");
    }
  });
}

TEST_CASE("a limit of bytes is kept closely while much comes") {
  Network network;
  Stalled stalled;
  FakeHost host("127.0.0.1", 5432, [&](int socket) { stalled.send_to(socket); });
  network.dns.set("db.example.com", {"127.0.0.1"});
  network.allow("db.example.com:5432");
  network.settings.limits.total_bytes = 9 << 19;
  network.apply();
  network.inside.run(
      [&] { CHECK(read_all(dial(resolve("db.example.com").address, 5432)).ends_with("(reset)")); });
  const uint64_t came = network.outside.use().bytes_in;
  CHECK(came >= 9 << 19);
  CHECK(came <= (9 << 19) + (64 << 10));
}

TEST_CASE("a rule that goes cuts a connection with much on its way") {
  Network network;
  Stalled stalled;
  FakeHost host("127.0.0.1", 5432, [&](int socket) { stalled.send_to(socket); });
  network.dns.set("db.example.com", {"127.0.0.1"});
  network.allow("db.example.com:5432");
  network.apply();
  Fd socket;
  network.inside.run([&] {
    socket = dial(resolve("db.example.com").address, 5432);
    REQUIRE(socket);
    stalled.wait_until_full();
  });
  network.settings.policy.own = {};
  CHECK(network.outside.ask("configure " + base::to_json(network.settings)) == "done 1");
  network.inside.run([&] {
    const std::string got = read_all(socket);
    CHECK(got.ends_with("(reset)"));
    CHECK(got.size() < stalled.bytes.size());
  });
}

TEST_CASE("on port 80 requests are judged after a long body, and while a long answer comes") {
  Network network;
  std::string asked;
  std::optional<FakeHost> host;
  const std::string much(8 << 20, 'x');
  const std::string request =
      "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: " + std::to_string(much.size()) +
      "\r\n\r\n" + much;
  host.emplace("127.0.0.1", 80, [&](int socket) {
    std::string bytes(64 << 10, '\0');
    const auto receive = [&] {
      const ssize_t size = recv(socket, bytes.data(), bytes.size(), 0);
      if (size > 0) asked.append(bytes, 0, static_cast<size_t>(size));
      return size > 0;
    };
    while (asked.size() < request.size() && receive()) {
    }
    send(socket, much.data(), much.size(), MSG_NOSIGNAL);
    while (receive()) {
    }
  });
  network.dns.set("example.com", {"127.0.0.1"});
  network.allow("example.com");
  network.apply();
  network.inside.run([&] {
    const Fd socket = dial(resolve("example.com").address, 80);
    REQUIRE(socket);
    base::write_all(socket.get(), request);
    REQUIRE(read_exactly(socket, 1 << 20).size() >= 1 << 20);
    base::write_all(socket.get(), "GET / HTTP/1.1\r\nHost: evil.org\r\n\r\n");
    CHECK(read_all(socket).find("HTTP/1.1 403 ") != std::string::npos);
  });
  host.reset();               // it has read all that came
  CHECK((asked == request));  // in parentheses: not printed
  CHECK(network.outside.use().refused == 1);
}
