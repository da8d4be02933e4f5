#include "egress/http_gate.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace moorage;
using egress::HttpGate;

namespace {

const std::string kGet = "GET /a HTTP/1.1\r\nHost: example.com\r\n\r\n";

std::string everything(std::string_view, std::string_view) { return {}; }

std::string one_by_one(HttpGate& gate, const std::string& bytes) {
  std::string passed;
  for (const char c : bytes) passed += gate.from_client({&c, 1});
  return passed;
}

}  // namespace

TEST_CASE("requests for the host pass unchanged, however they are cut") {
  const std::string bytes =
      kGet + "POST / HTTP/1.1\r\nHost: EXAMPLE.com:80\r\nContent-Length: 5\r\n\r\nhello" +
      "POST / HTTP/1.1\r\nhost: example.com.\r\nTransfer-Encoding: chunked\r\n"
      "Expect: 100-continue\r\n\r\n3\r\nabc\r\n0\r\n\r\n" +
      "OPTIONS * HTTP/1.1\r\nHost: example.com\r\n\r\n" +
      "GET http://example.com/x?a HTTP/1.1\r\nHost: example.com\r\n\r\n" +
      "GET / HTTP/1.0\r\nHost: example.com\r\n\r\n" + kGet;
  HttpGate whole("example.com", 80, everything);
  CHECK(whole.from_client(bytes) == bytes);
  CHECK(whole.refusal().empty());
  HttpGate cut("example.com", 80, everything);
  CHECK(one_by_one(cut, bytes) == bytes);
  CHECK(cut.refusal().empty());
}

TEST_CASE("a chunked body may come in any pieces, and an empty one, too") {
  const std::string header =
      "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string body : {"0\r\n\r\n", "0\r\nX: y\r\n\r\n", "1\r\na\r\n0\r\n\r\n",
                                 "5;x=y\r\nhello\r\n5\r\nhello\r\n0\r\n\r\n"}) {
    HttpGate gate("example.com", 80, everything);
    CHECK(one_by_one(gate, header + body + kGet) == header + body + kGet);
    for (size_t at = 0; at < body.size(); ++at) {
      HttpGate cut("example.com", 80, everything);
      std::string passed = cut.from_client(header + body.substr(0, at));
      passed += cut.from_client(body.substr(at));
      CHECK(passed == header + body);
    }
  }
  HttpGate streaming("example.com", 80, everything);
  CHECK(streaming.from_client(header + "5\r\nhel") == header + "5\r\nhel");
  CHECK(streaming.from_client("lo") == "lo");
  HttpGate wrong("example.com", 80, everything);
  one_by_one(wrong, header + "0\r\nabc\r\n0\r\n\r\n");
  CHECK_FALSE(wrong.refusal().empty());
}

TEST_CASE("nothing of a header leaves before all of it is judged") {
  for (const std::string& line :
       {std::string("GET /secret HTTP/1.1\r\n"), std::string("X: secret\r\n")}) {
    HttpGate gate("example.com", 80, everything);
    const std::string before = line.starts_with("X") ? "GET / HTTP/1.1\r\n" + line : line;
    CHECK(gate.from_client(before).empty());
    CHECK(gate.from_client("Host: example.com\r\nY: ").empty());
    CHECK(gate.from_client("y\r\n\r\n") == before + "Host: example.com\r\nY: y\r\n\r\n");
  }
  HttpGate wrong("example.com", 80, everything);
  CHECK(wrong.from_client("GET /secret HTTP/1.1\r\nX: secret\r\n").empty());
  CHECK(wrong.from_client("Host: evil.org\r\n\r\n").empty());
  CHECK_FALSE(wrong.refusal().empty());
}

TEST_CASE("a long body passes without being kept") {
  HttpGate gate("example.com", 80, everything);
  gate.from_client("PUT / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 100000000\r\n\r\n");
  const std::string piece(1 << 20, 'x');
  for (int i = 0; i < 95; ++i) REQUIRE(gate.from_client(piece).size() == piece.size());
}

TEST_CASE("nothing of a request for another host passes, wherever it stands") {
  const std::vector<std::string> wrong = {
      "GET / HTTP/1.1\r\nHost: evil.org\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: example.com.evil.org\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: evilexample.com\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: example.com:8080\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: user@example.com\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: example.com evil.org\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: example.com\r\nHost: evil.org\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: example.com\r\nHost: example.com\r\n\r\n",
      "GET / HTTP/1.1\r\nHost:\r\n\r\n",
      "GET / HTTP/1.1\r\nHost : example.com\r\n\r\n",
      "GET / HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.0\r\n\r\n",
      "GET http://evil.org/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
      "GET http://example.com@evil.org/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
      "GET https://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
      "GET //evil.org HTTP/1.2\r\nHost: example.com\r\n\r\n",
      "GET evil.org HTTP/1.1\r\nHost: example.com\r\n\r\n",
      "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: example.com\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: example.com\r\nX: a\nHost: evil.org\r\n\r\n",
      "GET /\x01 HTTP/1.1\r\nHost: example.com\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 4\r\nTransfer-Encoding: "
      "chunked\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\nContent-Length: "
      "4\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: xchunked\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
      "identity\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: +4\r\n\r\nabcd",
      "\r\n\r\n\x16\x03\x01",
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
  };
  for (const std::string& request : wrong) {
    INFO(request);
    HttpGate alone("example.com", 80, everything);
    CHECK(alone.from_client(request).empty());
    CHECK(alone.refusal().starts_with("HTTP/1.1 403 "));
    CHECK(alone.from_client(kGet).empty());
    HttpGate second("example.com", 80, everything);
    CHECK(second.from_client(kGet) == kGet);
    CHECK(second.from_client(request).empty());
    CHECK_FALSE(second.refusal().empty());
    HttpGate cut("example.com", 80, everything);
    CHECK(one_by_one(cut, kGet + request) == kGet);
    CHECK_FALSE(cut.refusal().empty());
  }
}

TEST_CASE("a header that ends its lines with bare line feeds does not pass") {
  HttpGate gate("example.com", 80, everything);
  CHECK(gate.from_client("GET / HTTP/1.1\nHost: example.com\n\n").empty());
}

TEST_CASE("the body of a request is not read as the next one") {
  const std::string inner = "GET / HTTP/1.1\r\nHost: evil.org\r\n\r\n";
  const std::string bytes =
      "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: " + std::to_string(inner.size()) +
      "\r\n\r\n" + inner;
  HttpGate gate("example.com", 80, everything);
  CHECK(gate.from_client(bytes) == bytes);
  CHECK(gate.from_client(inner).empty());
  CHECK_FALSE(gate.refusal().empty());
}

TEST_CASE("a WebSocket passes once the server agreed") {
  const std::string upgrade =
      "GET /ws HTTP/1.1\r\nHost: example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
  HttpGate gate("example.com", 80, everything);
  CHECK(gate.from_client(upgrade + "\x81\x01x") == upgrade);
  CHECK(gate.from_server("HTTP/1.1 ").empty());
  CHECK(gate.from_server("101 Switching Protocols\r\n\r\n") == "\x81\x01x");
  CHECK(gate.from_client("\x81\x01y") == "\x81\x01y");
}

TEST_CASE("after a refused upgrade requests are judged again") {
  const std::string upgrade =
      "GET /ws HTTP/1.1\r\nHost: example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
  HttpGate gate("example.com", 80, everything);
  CHECK(gate.from_client(upgrade + kGet) == upgrade);
  CHECK(gate.from_server("HTTP/1.1 404 Not Found\r\n") == kGet);
  CHECK(gate.from_client("GET / HTTP/1.1\r\nHost: evil.org\r\n\r\n").empty());
  CHECK_FALSE(gate.refusal().empty());
  HttpGate late("example.com", 80, everything);
  late.from_client(kGet);
  CHECK(late.from_client(upgrade).empty());
  CHECK_FALSE(late.refusal().empty());
}

TEST_CASE("a header without an end is refused at its limit") {
  HttpGate gate("example.com", 80, everything);
  gate.from_client("GET / HTTP/1.1\r\nHost: example.com\r\nX: ");
  for (int i = 0; i < 200 && gate.refusal().empty(); ++i)
    CHECK(gate.from_client(std::string(1024, 'x')).empty());
  CHECK_FALSE(gate.refusal().empty());
}

TEST_CASE("a request that the judge refuses does not pass, and the reason is in the answer") {
  std::vector<std::string> asked;
  HttpGate gate("example.com", 80, [&asked](std::string_view method, std::string_view target) {
    asked.push_back(std::string(method) + " " + std::string(target));
    return method == "GET" ? std::string() : "only GET";
  });
  const std::string absolute = "GET http://example.com/x?a HTTP/1.1\r\nHost: example.com\r\n\r\n";
  CHECK(gate.from_client(kGet + absolute) == kGet + absolute);
  CHECK(one_by_one(gate, "BREW /b HTTP/1.1\r\nHost: example.com\r\n\r\n").empty());
  CHECK(asked == std::vector<std::string>{"GET /a", "GET /x?a", "BREW /b"});
  CHECK(gate.why() == "only GET");
  CHECK(gate.refusal().starts_with("HTTP/1.1 403 "));
  CHECK(gate.refusal().ends_with("moorage: only GET\n"));
}
