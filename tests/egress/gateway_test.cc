#include "egress/gateway.h"

#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/digest.h"
#include "hello.h"
#include "inside.h"

using namespace moorage;
using namespace moorage::egress_test;

namespace {

void echo(int socket) {
  char bytes[65536];
  for (;;) {
    const ssize_t size = recv(socket, bytes, sizeof bytes, 0);
    if (size <= 0 || send(socket, bytes, static_cast<size_t>(size), MSG_NOSIGNAL) != size) return;
  }
}

// Until it finds the sighting, or 2 s.
bool saw(Network& network, base::SightingKind kind, const std::string& host, uint16_t port,
         const std::string& why = {}) {
  for (int i = 0; i < 20; ++i) {
    for (const base::Sighting& one : network.outside.sightings()) {
      if (one.kind == kind && one.host == host && one.port == port &&
          one.why.find(why) != std::string::npos) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

TEST_CASE("before the settings come no name resolves") {
  Network network;
  network.inside.run([] {
    const Answer answer = resolve("example.com");
    CHECK(answer.code == 2);
    CHECK(answer.address.empty());
  });
}

TEST_CASE("a name that no rule allows does not exist, and the answer says why") {
  Network network;
  network.dns.set("example.com", {"127.0.0.1"});
  network.apply();
  network.inside.run([] {
    for (const bool tcp : {false, true}) {
      for (const int type : {1, 28, 65, 16, 255}) {
        const Answer answer = resolve("Example.COM", type, tcp);
        CHECK(answer.code == 3);
        CHECK(answer.reason == 15);
        CHECK(answer.text == "not allowed: moorage net allow web example.com");
      }
    }
  });
  CHECK(network.dns.questions() == 0);
  CHECK(saw(network, base::SightingKind::refused, "example.com", 0, "no rule allows it"));
  CHECK(network.outside.sightings().size() == 1);
}

TEST_CASE("a follower that reads late gets every sighting") {
  Network network;
  network.apply();
  const Fd follower = network.outside.follow();
  const std::string tail = "." + std::string(60, 'a') + "." + std::string(60, 'b') + "." +
                           std::string(60, 'c') + ".example.com";
  network.inside.run([&] {
    for (int i = 0; i < 250; ++i) resolve("n" + std::to_string(i) + tail);
  });
  base::Sighting last;
  while (last.serial < 201) {
    REQUIRE(base::wait_readable(follower.get(), 10'000));
    const std::string message = base::receive_with_fds(follower.get(), 1 << 16).bytes;
    REQUIRE_FALSE(message.empty());
    if (!message.starts_with("seen ")) continue;
    const base::Sighting next = base::read_sighting(message.substr(5));
    CHECK(next.serial == last.serial + 1);
    last = next;
  }
  CHECK(last.host.empty());  // it says that there were more
}

TEST_CASE("an allowed host is reached at its ports, byte for byte, both ways") {
  Network network;
  FakeHost host("127.0.0.1", 5432, echo);
  network.dns.set("db.example.com", {"127.0.0.1"});
  network.allow("db.example.com:5432");
  network.apply();
  network.inside.run([] {
    const Answer answer = resolve("db.example.com");
    CHECK(answer.code == 0);
    CHECK(answer.address.starts_with("198.1"));
    CHECK(resolve("db.example.com").address == answer.address);
    CHECK(resolve("db.example.com", 28).code == 0);
    CHECK(resolve("db.example.com", 65).address.empty());
    const Fd socket = dial(answer.address, 5432);
    REQUIRE(socket);
    const std::string bytes = base::random_hex(2 << 20);
    std::string back;
    std::thread reader([&] { back = read_all(socket); });
    base::write_all(socket.get(), bytes);
    shutdown(socket.get(), SHUT_WR);
    reader.join();
    CHECK(back.size() == bytes.size());
    CHECK(base::sha256_hex(back) == base::sha256_hex(bytes));
    CHECK_FALSE(dial(answer.address, 5433));
  });
  const base::NetworkUse use = network.outside.use();
  CHECK(use.connected == 1);
  CHECK(use.bytes_in == 4 << 20);
  CHECK(use.bytes_out == 4 << 20);
  CHECK(saw(network, base::SightingKind::reached, "db.example.com", 5432));
}

TEST_CASE("a port that no rule names is reset, and seen") {
  Network network;
  FakeHost host("127.0.0.1", 22, echo);
  network.dns.set("example.com", {"127.0.0.1"});
  network.allow("example.com");
  network.apply();
  network.inside.run([] {
    const Fd socket = dial(resolve("example.com").address, 22);
    CHECK((!socket || read_all(socket) == "(reset)"));
  });
  CHECK(host.connections() == 0);
  CHECK(saw(network, base::SightingKind::refused, "example.com", 22));
}

TEST_CASE("on port 443 the hello must name the host") {
  Network network;
  FakeHost host("127.0.0.1", 443, echo);
  network.dns.set("example.com", {"127.0.0.1"});
  network.dns.set("other.com", {"127.0.0.1"});
  network.allow("example.com");
  network.allow("other.com");
  network.apply();
  network.inside.run([] {
    const std::string address = resolve("example.com").address;
    const std::string right = hello({"Example.com"});
    const Fd good = dial(address, 443);
    REQUIRE(good);
    for (size_t at = 0; at < right.size(); at += 100)
      base::write_all(good.get(), right.substr(at, 100));
    std::string back;
    while (back.size() < right.size()) back += read_some(good);
    CHECK(back == right);
    for (const std::string& wrong :
         {hello({"other.com"}), hello({"evil.org"}), hello({}), hello({"example.com.evil.org"})}) {
      const Fd socket = dial(address, 443);
      base::write_all(socket.get(), wrong);
      CHECK(read_all(socket) == egress::unrecognized_name_alert());
    }
    for (const std::string& wrong : {std::string("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"),
                                     std::string("SSH-2.0-x\r\n")}) {
      const Fd socket = dial(address, 443);
      base::write_all(socket.get(), wrong);
      CHECK(read_all(socket).empty());
    }
  });
  CHECK(host.connections() == 1);
  CHECK(saw(network, base::SightingKind::refused, "example.com", 443, "another host: other.com"));
  CHECK(network.outside.use().connections <= 1);
}

TEST_CASE("on port 80 every request must name the host") {
  Network network;
  FakeHost host("127.0.0.1", 80, echo);
  network.dns.set("example.com", {"127.0.0.1"});
  network.allow("example.com");
  network.apply();
  network.inside.run([] {
    const std::string request = "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n";
    const Fd socket = dial(resolve("example.com").address, 80);
    base::write_all(socket.get(), request);
    CHECK(read_some(socket) == request);
    base::write_all(socket.get(), "GET / HTTP/1.1\r\nHost: evil.org\r\n\r\n");
    CHECK(read_all(socket).starts_with("HTTP/1.1 403 "));
    const Fd first = dial(resolve("example.com").address, 80);
    base::write_all(first.get(), "GET / HTTP/1.1\r\nHost: evil.org\r\n\r\n");
    CHECK(read_all(first).find("is not example.com") != std::string::npos);
  });
  CHECK(host.connections() == 1);
}

TEST_CASE("a host that is no longer allowed is cut off at once, and back when it is") {
  Network network;
  FakeHost host("127.0.0.1", 5432, echo);
  network.dns.set("db.example.com", {"127.0.0.1"});
  network.allow("db.example.com:5432");
  network.apply();
  Fd socket;
  std::string address;
  network.inside.run([&] {
    address = resolve("db.example.com").address;
    socket = dial(address, 5432);
    base::write_all(socket.get(), "x");
    CHECK(read_some(socket) == "x");
  });
  const auto rules = std::exchange(network.settings.policy.own, {});
  CHECK(network.outside.ask("configure " + base::to_json(network.settings)) == "done 1");
  network.inside.run([&] {
    CHECK(read_some(socket) == "(reset)");
    CHECK_FALSE(dial(address, 5432));
    CHECK(resolve("db.example.com").code == 3);
  });
  network.settings.policy.own = rules;
  network.apply();
  network.inside.run([&] {
    CHECK(resolve("db.example.com").address == address);
    socket = dial(address, 5432);
    base::write_all(socket.get(), "y");
    CHECK(read_some(socket) == "y");
  });
}

TEST_CASE("a name that does not exist and a silent resolver get different answers") {
  Network network;
  network.allow(".example.com");
  network.settings.resolver.servers = {"127.0.0.1:5353"};
  network.apply();
  network.inside.run([] {
    const Answer answer = resolve("missing.example.com");
    CHECK(answer.code == 3);
    CHECK(answer.reason == -1);
  });
  network.settings.resolver.servers = {"127.0.0.1:5354"};  // nobody is there
  network.apply();
  network.inside.run([] {
    const Answer answer = resolve("other.example.com");
    CHECK(answer.code == 2);
    CHECK(answer.reason == 23);
  });
  CHECK(saw(network, base::SightingKind::unreachable, "other.example.com", 0));
}

TEST_CASE("private addresses are refused by what the name resolves to") {
  Network network;
  for (const char* address : {"127.0.0.2", "10.0.0.1", "169.254.169.254", "192.168.1.1", "0.0.0.0",
                              "100.64.0.1", "198.18.0.1", "172.16.0.1"}) {
    network.dns.set("inner.example.com", {address});
    network.settings.policy.own.clear();
    network.allow("inner.example.com");
    network.apply();  // forgets the former answer
    network.inside.run([] {
      const Answer answer = resolve("inner.example.com");
      CHECK(answer.code == 3);
      CHECK(answer.reason == 15);
      CHECK(answer.address.empty());
    });
  }
  CHECK(
      saw(network, base::SightingKind::refused, "inner.example.com", 0, "127.0.0.2 is a loopback"));
}

TEST_CASE("no name leads to an address of the host itself unless the settings open it") {
  Network network;
  network.settings.resolver.host = {"8.8.8.8", "2001:4860:4860::8888"};
  network.dns.set("self.example.com", {"8.8.8.8"});
  network.allow("self.example.com");
  network.apply();
  network.inside.run([] { CHECK(resolve("self.example.com").code == 3); });
  CHECK(saw(network, base::SightingKind::refused, "self.example.com", 0,
            "8.8.8.8 is an address of the host itself"));
  network.settings.resolver.reachable = {"8.8.8.0/24"};
  network.apply();
  network.inside.run([] { CHECK(resolve("self.example.com").code == 0); });
}

TEST_CASE("an answer that changes never leads to another address") {
  Network network;
  FakeHost wanted("127.0.0.1", 5432, echo);
  FakeHost trap("127.0.0.2", 5432, echo);
  network.allow("rebind.example.com:5432");
  network.dns.set("rebind.example.com", {"127.0.0.1", "127.0.0.2"});
  size_t reached = 0;
  for (int round = 0; round < 200; ++round) {
    network.apply();
    network.inside.run([&] {
      const Answer answer = resolve("rebind.example.com");
      if (answer.code != 0) return;
      const Fd socket = dial(answer.address, 5432);
      if (!socket) return;
      send(socket.get(), "x", 1, MSG_NOSIGNAL);
      reached += read_some(socket) == "x" ? 1 : 0;
    });
  }
  CHECK(reached > 50);
  CHECK(trap.connections() == 0);
}

TEST_CASE("limits hold: connections, bytes, rate") {
  Network network;
  FakeHost host("127.0.0.1", 5432, echo);
  network.dns.set("db.example.com", {"127.0.0.1"});
  network.allow("db.example.com:5432");
  network.settings.limits.connections = 3;
  network.apply();
  network.inside.run([] {
    const std::string address = resolve("db.example.com").address;
    std::vector<Fd> sockets;
    for (int i = 0; i < 3; ++i) {
      sockets.push_back(dial(address, 5432));
      base::write_all(sockets.back().get(), "x");
      CHECK(read_some(sockets.back()) == "x");
    }
    const Fd fourth = dial(address, 5432);
    CHECK((!fourth || read_all(fourth) == "(reset)"));
  });
  CHECK(network.outside.use().over_limit == 1);
  network.settings.limits = {100, 1 << 20, 0};
  network.apply();
  network.inside.run([] {
    const Fd socket = dial(resolve("db.example.com").address, 5432);
    const auto begin = std::chrono::steady_clock::now();
    std::string back;
    std::thread reader([&] { back = read_all(socket); });
    base::write_all(socket.get(), std::string(600'000, 'x'));
    shutdown(socket.get(), SHUT_WR);
    reader.join();
    CHECK(back.size() == 600'000);
    CHECK(std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(600));
  });
  network.settings.limits = {100, 0, 3'000'000};
  network.apply();
  network.inside.run([] {
    const Fd socket = dial(resolve("db.example.com").address, 5432);
    std::thread writer([&] {
      const std::string piece(100'000, 'x');
      for (int i = 0; i < 100; ++i) {
        if (send(socket.get(), piece.data(), piece.size(), MSG_NOSIGNAL) < 0) return;
      }
    });
    CHECK(read_all(socket).size() < 4'000'000);
    writer.join();
  });
}

TEST_CASE("a host that does not listen resets the connection, and is seen") {
  Network network;
  network.dns.set("db.example.com", {"127.0.0.1"});
  network.allow("db.example.com:5432");
  network.apply();
  network.inside.run([] {
    const Fd socket = dial(resolve("db.example.com").address, 5432);
    CHECK((!socket || read_all(socket) == "(reset)"));
  });
  CHECK(
      saw(network, base::SightingKind::unreachable, "db.example.com", 5432, "Connection refused"));
}

TEST_CASE("a company's proxy is asked for the host, and resolves it") {
  Network network;
  std::string request;
  FakeHost proxy("127.0.0.1", 3128, [&](int socket) {
    char bytes[4096];
    const ssize_t size = recv(socket, bytes, sizeof bytes, 0);
    request.assign(bytes, static_cast<size_t>(std::max<ssize_t>(size, 0)));
    base::write_all(socket, "HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nfirst");
    echo(socket);
  });
  network.allow("db.example.com:5432");
  network.settings.proxy =
      base::ProxySettings{{"127.0.0.1"}, 3128, "Basic dTpw", {".inner.example"}};
  network.apply();
  network.inside.run([] {
    const Fd socket = dial(resolve("db.example.com").address, 5432);
    CHECK(read_some(socket) == "first");
    base::write_all(socket.get(), "x");
    CHECK(read_some(socket) == "x");
  });
  CHECK(request.starts_with("CONNECT db.example.com:5432 HTTP/1.1\r\n"));
  CHECK(request.find("Proxy-Authorization: Basic dTpw\r\n") != std::string::npos);
  CHECK(network.dns.questions() == 0);
}

TEST_CASE("a new line takes over, and the sandbox's end is noticed") {
  Network network;
  FakeHost host("127.0.0.1", 5432, echo);
  network.dns.set("db.example.com", {"127.0.0.1"});
  network.allow("db.example.com:5432");
  network.apply();
  Fd socket;
  network.inside.run([&] {
    socket = dial(resolve("db.example.com").address, 5432);
    base::write_all(socket.get(), "x");
    CHECK(read_some(socket) == "x");
  });
  network.reconnect();
  network.inside.run([&] {
    base::write_all(socket.get(), "y");
    CHECK(read_some(socket) == "y");
    CHECK(resolve("db.example.com").code == 0);
  });
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  const Fd ours(ends[0]);
  Fd theirs(ends[1]);
  REQUIRE(network.outside.ask("line", {ours.get()}) == "done");
  CHECK_FALSE(network.outside.line_ended());
  theirs.reset();
  for (int i = 0; i < 200 && !network.outside.line_ended(); ++i) usleep(10'000);
  CHECK(network.outside.line_ended());
}

TEST_CASE("settings that another release wrote are refused, and the former stay") {
  Network network;
  network.allow("db.example.com:5432");
  network.dns.set("db.example.com", {"127.0.0.1"});
  network.apply();
  std::string json = base::to_json(network.settings);
  json.insert(1, "\"newer\":1,");
  CHECK(network.outside.ask("configure " + json).starts_with("error "));
  CHECK(network.outside.ask("configure {}").starts_with("error "));
  CHECK(network.outside.ask("configure").starts_with("error "));
  CHECK(network.outside.ask("nonsense").starts_with("error "));
  network.inside.run([] { CHECK(resolve("db.example.com").code == 0); });
}
