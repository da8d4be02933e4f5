// Hosts whose TLS ends at the egress, end to end: a TLS client inside, a TLS server outside.
#include <catch2/catch.hpp>

#include "base/digest.h"
#include "inside.h"
#include "tls.h"

using namespace moorage;
using namespace moorage::egress_test;

namespace {

const std::string kHost = "api.example.com";
const std::string kSecret = "sk-this-is-the-secret";

std::string get(const std::string& path, const std::string& more = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: " + kHost + "\r\n" + more + "\r\n";
}
std::string answer(const std::string& body, const std::string& status = "200 OK") {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

struct Brokered : Network {
  Brokered() {
    dns.set(kHost, {"127.0.0.1"});
    allow(kHost);
    base::CredentialScope scope = base::parse_scope("https://" + kHost + "/v1/");
    base::parse_form("bearer", scope);
    scope.credential = "api";
    settings.credentials = {scope};
    CHECK(outside.ask("authority " + intermediate.certificate + intermediate.key) == "done");
    base::Pipe pipe = base::make_pipe();
    base::write_all(pipe.write_end.get(), world.certificate);
    pipe.write_end.reset();
    CHECK(outside.ask("roots", {pipe.read_end.get()}) == "done");
    apply();
    news = outside.follow();
  }
  void wait_for_need() {
    for (std::string message; message != "need api";) {
      REQUIRE(base::wait_readable(news.get(), 10'000));
      message = base::receive_with_fds(news.get(), 1 << 16).bytes;
    }
  }
  // Answers the next wish for a secret.
  void give(const std::string& secret) {
    wait_for_need();
    base::Pipe pipe = base::make_pipe();
    base::write_all(pipe.write_end.get(), secret + "\n");
    pipe.write_end.reset();
    CHECK(outside.ask("secret api", {pipe.read_end.get()}) == "done");
  }
  template <typename Work>
  void inside_tls(Work work) {
    inside.run([&] {
      const Fd socket = dial(resolve(kHost).address, 443);
      REQUIRE(socket);
      Tls tls = Tls::client(socket.get(), store.certificate, kHost);
      REQUIRE(tls.shook_hands());
      work(tls);
    });
  }
  std::vector<std::string> refusals() {
    std::vector<std::string> all;
    for (const base::Sighting& sighting : outside.sightings()) {
      if (sighting.kind == base::SightingKind::refused) all.push_back(sighting.why);
    }
    return all;
  }

  base::IssuedCertificate world = base::Issuer::self_signed({.name = "world", .authority = true});
  base::IssuedCertificate store =
      base::Issuer::self_signed({.name = "store", .authority = true, .path_length = 1});
  base::IssuedCertificate intermediate =
      base::Issuer(store.certificate + store.key)
          .issue({.name = "sandbox", .authority = true, .hosts = {kHost}});
  base::IssuedCertificate own =
      base::Issuer(world.certificate + world.key).issue({.name = kHost, .hosts = {kHost}});
  Fd news;
};

}  // namespace

TEST_CASE("a secret takes the placeholder's place, outside") {
  Brokered network;
  std::string seen;
  FakeHost host("127.0.0.1", 443, [&](int socket) {
    Tls tls = Tls::server(socket, network.own);
    for (int i = 0; i < 3; ++i) {
      seen += tls.until("\r\n\r\n");
      tls.send(answer("fine"));
    }
  });
  std::thread giver([&] { network.give(kSecret); });
  network.inside_tls([&](Tls& tls) {
    for (int i = 0; i < 2; ++i) {  // the second without asking the daemon
      tls.send(get("/v1/models", "Authorization: Bearer moorage-credential-api\r\n"));
      CHECK(tls.until("fine").starts_with("HTTP/1.1 200 OK\r\n"));
    }
    tls.send(get("/public"));
    CHECK(tls.until("fine").starts_with("HTTP/1.1 200 OK\r\n"));
  });
  giver.join();
  const std::string with =
      "GET /v1/models HTTP/1.1\r\nHost: api.example.com\r\n"
      "Authorization: Bearer " +
      kSecret + "\r\nAccept-Encoding: identity\r\n\r\n";
  CHECK(seen == with + with + "GET /public HTTP/1.1\r\nHost: api.example.com\r\n\r\n");
}

TEST_CASE("a placeholder that is sent elsewhere is refused and noted") {
  const std::string request =
      GENERATE(get("/other", "Authorization: Bearer moorage-credential-api\r\n"),
               get("/v1/x", "X-Api-Key: moorage-credential-api\r\n"),
               get("/v1/x?key=moorage-credential-api"),
               get("/other", "Authorization: Basic bW9vcmFnZS1jcmVkZW50aWFsLWFwaTo=\r\n"));
  Brokered network;
  FakeHost host("127.0.0.1", 443, [](int) {});
  network.inside_tls([&](Tls& tls) {
    tls.send(request);
    CHECK(tls.all().starts_with("HTTP/1.1 403 "));
  });
  CHECK(host.connections() == 0);
  REQUIRE(network.refusals().size() == 1);
  CHECK(network.refusals()[0].starts_with(
      "the placeholder of the credential api was sent where it is not valid"));
}

TEST_CASE("403 gives the reason if there is no secret, or it is not accepted") {
  Brokered network;
  FakeHost host("127.0.0.1", 443, [&](int socket) {
    Tls tls = Tls::server(socket, network.own);
    tls.until("\r\n\r\n");
    tls.send(answer("who are you", "401 Unauthorized"));
    tls.all();
  });
  std::string got;
  SECTION("none") {
    std::thread giver([&] {
      network.wait_for_need();
      CHECK(network.outside.ask("no-secret api the command of the credential api failed: exit 3") ==
            "done");
    });
    network.inside_tls([&](Tls& tls) {
      tls.send(get("/v1/x"));
      got = tls.all();
    });
    giver.join();
    CHECK(got.find("the command of the credential api failed: exit 3") != std::string::npos);
    CHECK(host.connections() == 0);
  }
  SECTION("expired; the next request asks for a new one") {
    for (int i = 0; i < 2; ++i) {
      std::thread giver([&] { network.give(kSecret); });
      network.inside_tls([&](Tls& tls) {
        tls.send(get("/v1/x"));
        got = tls.all();
      });
      giver.join();
      CHECK(got.find("api.example.com did not accept the credential api (401)") !=
            std::string::npos);
    }
  }
  CHECK(got.starts_with("HTTP/1.1 403 "));
}

TEST_CASE("a secret that was rotated costs the program nothing") {
  Brokered network;
  std::vector<std::string> seen;
  FakeHost host("127.0.0.1", 443, [&](int socket) {
    Tls tls = Tls::server(socket, network.own);
    for (const char* status : {"200 OK", "401 Unauthorized", "200 OK"}) {
      seen.push_back(tls.until("\r\n\r\n"));
      tls.send(answer(status, status));
    }
    tls.all();
  });
  std::thread giver([&] {
    network.give(kSecret);
    network.give("the-next-secret");
  });
  network.inside_tls([&](Tls& tls) {
    for (int i = 0; i < 2; ++i) {
      tls.send(get("/v1/x"));
      CHECK(tls.until("\r\n\r\n200 OK").starts_with("HTTP/1.1 200 OK\r\n"));
    }
  });
  giver.join();
  REQUIRE(seen.size() == 3);
  CHECK(seen[1].find("Bearer " + kSecret) != std::string::npos);
  CHECK(seen[2].find("Bearer the-next-secret") != std::string::npos);
}

TEST_CASE("the host's certificate is verified before anything is sent") {
  Brokered network;
  const auto other = base::Issuer::self_signed({.name = kHost, .hosts = {kHost}});
  const auto misnamed = base::Issuer(network.world.certificate + network.world.key)
                            .issue({.name = kHost, .hosts = {"other.example.com"}});
  const auto& shown = GENERATE_REF(other, misnamed);
  std::string seen;
  FakeHost host("127.0.0.1", 443, [&](int socket) {
    Tls tls = Tls::server(socket, shown);
    if (tls.shook_hands()) seen = tls.all();
  });
  std::thread giver([&] { network.give(kSecret); });
  network.inside_tls([&](Tls& tls) {
    tls.send(get("/v1/x"));
    const std::string got = tls.all();
    CHECK(got.starts_with("HTTP/1.1 502 "));
    CHECK(got.find("no TLS connection to api.example.com") != std::string::npos);
  });
  giver.join();
  CHECK(seen.empty());
}

TEST_CASE("a program that offers HTTP/2 alone learns that the host does not speak it") {
  const bool alert = GENERATE(true, false);
  Brokered network;
  FakeHost host("127.0.0.1", 443, [&](int socket) {
    Tls tls = Tls::server(socket, network.own, alert);
    if (tls.shook_hands()) tls.all();
  });
  network.inside.run([&] {
    const Fd socket = dial(resolve(kHost).address, 443);
    Tls tls = Tls::client(socket.get(), network.store.certificate, kHost, "h2");
    REQUIRE(tls.shook_hands());
    // Settings, then a GET of "/" as HPACK writes it.
    tls.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string(3, '\0') + "\4" +
             std::string(5, '\0') + std::string("\0\0\x14\1\5\0\0\0\1\x82\x87\x84\x41\x0f", 14) +
             kHost);
    const std::string got = tls.until("it does not speak HTTP/2");
    CHECK(got.find("no TLS connection to api.example.com: it does not speak HTTP/2") != got.npos);
  });
}

TEST_CASE("a rule may limit a host to some methods") {
  Brokered network;
  network.settings.credentials.clear();
  network.settings.policy.own[0].methods = {"GET", "HEAD"};
  network.apply();
  FakeHost host("127.0.0.1", 443, [&](int socket) {
    Tls tls = Tls::server(socket, network.own);
    tls.until("\r\n\r\n");
    tls.send(answer("read"));
    tls.all();
  });
  network.inside_tls([&](Tls& tls) {
    tls.send(get("/x"));
    CHECK(tls.until("read").starts_with("HTTP/1.1 200 OK\r\n"));
    tls.send("PUT /x HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 1\r\n\r\nx");
    const std::string got = tls.all();
    CHECK(got.starts_with("HTTP/1.1 403 "));
    CHECK(
        got.find(
            "PUT api.example.com/x is not allowed, only GET,HEAD; allow it: moorage net allow ") !=
        std::string::npos);
  });
}

TEST_CASE("much passes whole in both directions") {
  Brokered network;
  const std::string much = base::random_hex(8 << 20);
  std::string came;
  FakeHost host("127.0.0.1", 443, [&](int socket) {
    Tls tls = Tls::server(socket, network.own);
    came = tls.until("\r\n\r\n");
    came.erase(0, came.find("\r\n\r\n") + 4);
    while (came.size() < much.size()) came += tls.some();
    tls.send("HTTP/1.1 200 OK\r\n\r\n" + much);
  });
  network.inside_tls([&](Tls& tls) {
    tls.send("POST /x HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: " +
             std::to_string(much.size()) + "\r\n\r\n" + much);
    const std::string got = tls.all();
    CHECK(base::sha256_hex(got.substr(got.find("\r\n\r\n") + 4)) == base::sha256_hex(much));
  });
  CHECK(base::sha256_hex(came) == base::sha256_hex(much));
}

TEST_CASE("a client that does not trust the store's authority is explained") {
  Brokered network;
  network.inside.run([&] {
    const Fd socket = dial(resolve(kHost).address, 443);
    Tls tls = Tls::client(socket.get(), network.world.certificate, kHost);
    CHECK_FALSE(tls.shook_hands());
  });
  bool noted = false;
  for (const base::Sighting& sighting : network.outside.sightings())
    noted = noted || sighting.why.starts_with("the program did not accept the certificate");
  CHECK(noted);
}
