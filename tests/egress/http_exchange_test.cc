#include "egress/broker/http_exchange.h"

#include <catch2/catch.hpp>

using namespace moorage;
using egress::HeadChange;
using egress::HttpExchange;
using State = HttpExchange::State;

namespace {

const std::string kGet = "GET /a HTTP/1.1\r\nHost: api.example.com\r\n\r\n";

struct Exchange : HttpExchange {
  Exchange() : HttpExchange("api.example.com", 443) {}
  std::string at_server() { return std::exchange(to_server, {}); }
  std::string at_client() { return std::exchange(to_client, {}); }
  // In pieces of this size.
  void client(std::string_view bytes, size_t piece = 1'000'000) {
    for (; !bytes.empty() && state() != State::over;
         bytes.remove_prefix(std::min(piece, bytes.size()))) {
      from_client(bytes.substr(0, piece));
      if (state() == State::judging) pass(change);
    }
  }
  void server(std::string_view bytes, size_t piece = 1'000'000) {
    for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size())))
      from_server(bytes.substr(0, piece));
  }
  std::string trouble() { return troubles_.empty() ? "" : troubles_.back().why; }
  HeadChange change;
};

std::string body_of(const std::string& message) {
  return message.substr(message.find("\r\n\r\n") + 4);
}

}  // namespace

TEST_CASE("requests and answers are written anew, whatever pieces they come in") {
  const size_t piece = GENERATE(1, 2, 3, 7, 1'000'000);
  Exchange exchange;
  for (int i = 0; i < 3; ++i) {
    exchange.client(
        "POST /v1?x=1 HTTP/1.1\r\nhost: API.example.com:443\r\nX-One: 1\r\nConnection: "
        "keep-alive\r\n"
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        piece);
    const std::string sent = exchange.at_server();
    CHECK(
        sent.starts_with("POST /v1?x=1 HTTP/1.1\r\nHost: api.example.com\r\nX-One: 1\r\n"
                         "Transfer-Encoding: chunked\r\n\r\n"));
    CHECK(sent.ends_with("0\r\n\r\n"));
    exchange.server("HTTP/1.1 100 Continue\r\n\r\n", piece);
    CHECK(exchange.at_client() == "HTTP/1.1 100 Continue\r\n\r\n");
    exchange.server("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nAlt-Svc: h3=\":443\"\r\n\r\nworld",
                    piece);
    CHECK(exchange.at_client() == "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nworld");
    CHECK(exchange.state() == State::head);
  }
}

TEST_CASE("fields are taken out and put in") {
  Exchange exchange;
  exchange.change.without = {"authorization", "x-api-key"};
  exchange.change.with = {{"Authorization", "Bearer secret-of-the-api"}};
  exchange.change.secrets = {"secret-of-the-api"};
  exchange.client(
      "GET /a HTTP/1.1\r\nHost: api.example.com\r\nAUTHORIZATION: Bearer placeholder\r\n"
      "X-Api-Key: placeholder\r\nAccept-Encoding: gzip\r\nAccept: */*\r\n\r\n");
  CHECK(exchange.at_server() ==
        "GET /a HTTP/1.1\r\nHost: api.example.com\r\nAccept: */*\r\n"
        "Authorization: Bearer secret-of-the-api\r\nAccept-Encoding: identity\r\n\r\n");
}

TEST_CASE("a second request waits for the answer to the first, and nothing hides in a body") {
  Exchange exchange;
  exchange.client("POST /a HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 4\r\n\r\nGET " +
                  kGet);
  CHECK(body_of(exchange.at_server()) == "GET ");
  CHECK_FALSE(exchange.takes_from_client());
  exchange.server("HTTP/1.1 204 No Content\r\n\r\n");
  CHECK(exchange.state() == State::judging);
  exchange.pass({});
  CHECK(exchange.at_server().starts_with("GET /a HTTP/1.1\r\n"));
}

TEST_CASE("a message with two readings is refused") {
  const auto [request, why] = GENERATE(table<std::string, std::string>({
      {"GET /a HTTP/1.1\r\nHost: other.example.com\r\n\r\n",
       "the Host header is not api.example.com"},
      {"GET /a HTTP/1.1\r\n\r\n", "the Host header is not api.example.com"},
      {"GET /a HTTP/1.1\r\nHost: api.example.com\r\nHost: other.example.com\r\n\r\n",
       "two Host headers"},
      {"GET https://other.example.com/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
       "the target names another host than api.example.com"},
      {"GET http://api.example.com/a HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
       "the target is not a path"},
      {"TRACE / HTTP/1.1\r\nHost: api.example.com\r\n\r\n", "TRACE is not carried"},
      {"CONNECT other.example.com:443 HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
       "CONNECT is not carried"},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "not valid HTTP/1.1: bad version"},
      {"POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: "
       "chunked\r\nTransfer-Encoding: identity\r\n\r\n",
       "not valid HTTP/1.1: bad Transfer-Encoding"},
      {"GET / HTTP/1.1\r\nHost: api.example.com\r\nUpgrade: h2c\r\n\r\n",
       "only websocket is a protocol to upgrade to"},
      {"GET / HTTP/1.1\r\nHost: api.example.com\r\nX-HTTP-Method-Override: DELETE\r\n\r\n",
       "the header X-HTTP-Method-Override is not carried: it changes what is asked for"},
      {"GET / HTTP/1.1\r\nHost: api.example.com\r\nx-original-url: /admin\r\n\r\n",
       "the header x-original-url is not carried: it changes what is asked for"},
      {"GET / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 3, 3\r\n\r\n",
       "two Content-Length headers"},
      {"GET / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 3\r\n"
       "Content-Length: 3\r\n\r\n",
       "two Content-Length headers"},
  }));
  Exchange exchange;
  exchange.client(request);
  CHECK(exchange.state() == State::over);
  CHECK(exchange.trouble() == why);
  CHECK(exchange.at_server().empty());
  CHECK(exchange.at_client().starts_with("HTTP/1.1 403 "));
}

TEST_CASE("no spelling of a body's frame lets a second request through unseen") {
  const std::string second = "GET /evil HTTP/1.1\r\nHost: evil.org\r\n\r\n";
  const std::string head = GENERATE(
      as<std::string>{},                                                   //
      "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",  // CL.TE
      "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",  // TE.CL
      "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
      "Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
      "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
      "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
      "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
      "Transfer-Encoding:\x0b"
      "chunked\r\n\r\n0\r\n\r\n",
      "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
      " Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "X: y\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "X: y\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "X: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Content-Length: +5\r\n\r\nhello",
      "Content-Length: 0x5\r\n\r\nhello", "Content-Length: -5\r\n\r\nhello",
      "Content-Length: 5 0\r\n\r\nhello", "Content-Length: 5\r\nContent-Length: 0\r\n\r\nhello",
      "Content-Length: 18446744073709551621\r\n\r\nhello",
      "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
      "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
      "Transfer-Encoding: chunked\r\n\r\n5;a=\n\r\nhello\r\n0\r\n\r\n",
      "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n",
      "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
      "Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n");
  Exchange exchange;
  exchange.client("POST / HTTP/1.1\r\nHost: api.example.com\r\n" + head + second,
                  GENERATE(1, 1'000));
  CHECK(exchange.state() == State::over);
  CHECK(exchange.at_server().find("evil") == std::string::npos);
}

TEST_CASE("an odd but valid frame of a body is written in the usual form") {
  const auto [head, expected] = GENERATE(table<std::string, std::string>({
      {"Transfer-Encoding: chunked\r\n\r\n5;name=\"a\\\"b\"\r\nhello\r\n000;x\r\n\r\n",
       "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"},
      {"TRANSFER-ENCODING: Chunked\r\n\r\n5\r\nhello\r\n0\r\nHost: evil.org\r\nUpgrade: "
       "websocket\r\n\r\n",
       "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"},
      {"Connection: X-Key, close\r\nX: a\r\n b\r\n\r\n", "X: a b\r\n\r\n"},
      {"Keep-Alive: 5\r\nProxy-Authorization: x\r\nContent-Length: 5\r\n\r\nhello",
       "Content-Length: 5\r\n\r\nhello"},
  }));
  Exchange exchange;
  exchange.client("POST / HTTP/1.1\r\nHost: api.example.com\r\n" + head);
  CHECK(exchange.at_server() == "POST / HTTP/1.1\r\nHost: api.example.com\r\n" + expected);
  exchange.server(
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
  CHECK(exchange.state() == State::over);
}

TEST_CASE("a request with a credential gets no answer in which it could not be recognized") {
  Exchange exchange;
  exchange.change.secrets = {"secret-of-the-api"};
  SECTION("a compressed one") {
    const std::string encoding = GENERATE("gzip", "deflate", "br", "zstd", "identity, gzip");
    exchange.client(kGet);
    exchange.server("HTTP/1.1 200 OK\r\nContent-Encoding: " + encoding +
                    "\r\nContent-Length: 4\r\n\r\nabcd");
    CHECK(exchange.at_client().starts_with("HTTP/1.1 502 "));
  }
  SECTION("compressed frames, which are not offered") {
    exchange.client(
        "GET /ws HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Key: x\r\n\r\n");
    CHECK(exchange.at_server().find("Extensions") == std::string::npos);
    exchange.server(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n");
    CHECK(exchange.at_client().starts_with("HTTP/1.1 502 "));
  }
  SECTION("a frame that contains it") {
    exchange.client(
        "GET /ws HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\n\r\n");
    exchange.server(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
    CHECK(exchange.state() == State::tunnel);
    exchange.server("\x81\x05hello\x81\x15you: secret-of-the-api", GENERATE(1, 4, 1'000));
    CHECK(exchange.trouble() == "the host's answer contained the credential");
    CHECK(exchange.at_client().find("secre") == std::string::npos);
  }
  CHECK(exchange.state() == State::over);
}

TEST_CASE("an answer without a body is not given the end of one") {
  const std::string status = GENERATE("204 No Content", "304 Not Modified");
  Exchange exchange;
  exchange.client(kGet);
  exchange.server("HTTP/1.1 " + status + "\r\nTransfer-Encoding: chunked\r\n\r\n");
  CHECK(exchange.at_client() == "HTTP/1.1 " + status + "\r\n\r\n");
  CHECK(exchange.state() == State::head);
}

TEST_CASE("a length beside chunks is refused") {
  Exchange exchange;
  exchange.client(
      "POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 3\r\nTransfer-Encoding: "
      "chunked\r\n\r\n");
  CHECK(exchange.state() == State::over);
  CHECK(exchange.at_server().empty());
}

TEST_CASE("an answer that repeats the credential does not arrive") {
  const std::string secret = "secret-of-the-api";
  const auto [head, body] = GENERATE_COPY(table<std::string, std::string>({
      {"HTTP/1.1 302 Found\r\nLocation: https://other/?" + secret + "\r\nContent-Length: 0\r\n\r\n",
       ""},
      {"HTTP/1.1 400 Bad\r\nContent-Length: 22\r\n\r\n", "echo " + secret},
      {"HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n",
       "b\r\necho secret\r\nb\r\n-of-the-api\r\n0\r\n\r\n"},
      {"HTTP/1.1 200 OK\r\n\r\n", "until the end: " + secret},
  }));
  Exchange exchange;
  exchange.change.secrets = {secret};
  exchange.client(kGet);
  exchange.server(head + body, GENERATE(1, 5, 1000));
  exchange.server_ended();
  CHECK(exchange.state() == State::over);
  CHECK(exchange.trouble() == "the host's answer contained the credential");
  CHECK(exchange.at_client().find("-of-the-api") == std::string::npos);
}

TEST_CASE("an answer that only begins like the credential arrives whole") {
  Exchange exchange;
  exchange.change.secrets = {"secret-of-the-api"};
  exchange.client(kGet);
  exchange.server("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nsecret-of\r\n");
  CHECK(exchange.at_client().find("secret") == std::string::npos);
  exchange.server("6\r\n-mine.\r\n");
  CHECK(body_of(exchange.at_client()).empty() == false);
  exchange.server("6\r\nsecret\r\n0\r\n\r\n");
  CHECK(exchange.at_client() == "6\r\nsecret\r\n0\r\n\r\n");
  CHECK(exchange.state() == State::head);
}

TEST_CASE("a WebSocket is a tunnel once the host agrees") {
  const std::string request =
      "GET /ws HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
      "Sec-WebSocket-Key: x\r\n\r\n";
  Exchange exchange;
  exchange.client(request + "early");
  CHECK(exchange.at_server().find("early") == std::string::npos);
  SECTION("it does") {
    exchange.server(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: "
        "Upgrade\r\n\r\nframe");
    CHECK(exchange.state() == State::tunnel);
    CHECK(exchange.at_server() == "early");
    CHECK(body_of(exchange.at_client()) == "frame");
    exchange.from_client("GET / HTTP/1.1");
    CHECK(exchange.at_server() == "GET / HTTP/1.1");
  }
  SECTION("it does not") {
    exchange.server("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    CHECK(exchange.at_server().empty());  // "early" may become a request
  }
}

TEST_CASE(
    "an answer to HEAD ends with its head, one without a length at the end of the connection") {
  Exchange exchange;
  exchange.client("HEAD /a HTTP/1.1\r\nHost: api.example.com\r\n\r\n");
  exchange.server("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
  CHECK(exchange.state() == State::head);
  exchange.client(kGet);
  exchange.at_client();
  exchange.server("HTTP/1.1 200 OK\r\n\r\nuntil");
  exchange.server(" the end");
  CHECK(exchange.state() != State::over);
  exchange.server_ended();
  CHECK(exchange.state() == State::over);
  CHECK(exchange.trouble().empty());
  CHECK(exchange.at_client() == "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end");
}

TEST_CASE("a host that closes without an answer: 502, but not when it closes a kept connection") {
  Exchange exchange;
  exchange.client(kGet);
  SECTION("the first request") {
    exchange.server_ended();
    CHECK(exchange.at_client().starts_with("HTTP/1.1 502 "));
  }
  SECTION("a later one, which the program sends again over a new connection") {
    exchange.server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    exchange.at_client();
    exchange.client(kGet);
    exchange.server_ended();
    CHECK(exchange.at_client().empty());
    CHECK(exchange.trouble().empty());
  }
  SECTION("a later one whose answer has begun") {
    exchange.server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    exchange.at_client();
    exchange.client(kGet);
    exchange.server("HTTP/1.1 2");
    exchange.server_ended();
    CHECK(exchange.at_client().starts_with("HTTP/1.1 502 "));
  }
  CHECK(exchange.state() == State::over);
}

TEST_CASE("a host that says more than it was asked ends the connection") {
  Exchange exchange;
  SECTION("before a request") {
    exchange.from_server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  }
  SECTION("after its answer") {
    exchange.client(kGet);
    exchange.server("HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n");
  }
  SECTION("a protocol that nobody asked for") {
    exchange.client(kGet);
    exchange.server(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
  }
  CHECK(exchange.state() == State::over);
}

TEST_CASE("the judge's answer takes the place of the host's") {
  Exchange exchange;
  SECTION("before it is asked") {
    exchange.from_client(kGet);
    exchange.answer(403, "the credential api has expired");
    CHECK(exchange.at_server().empty());
  }
  SECTION("when its head has come") {
    exchange.on_response([&](const egress::ResponseHead& head) {
      if (head.status == 401) exchange.answer(403, "the credential api has expired");
    });
    exchange.client(kGet);
    exchange.server("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno");
  }
  CHECK(exchange.state() == State::over);
  const std::string answer = exchange.at_client();
  CHECK(answer.starts_with("HTTP/1.1 403 "));
  CHECK(body_of(answer) ==
        R"({"type":"error","error":{"type":"permission_error","code":"moorage_refused",)"
        R"("message":"moorage: the credential api has expired"}})"
        "\n");
}

TEST_CASE("a request that is kept whole is sent again, and the first answer is dropped") {
  const std::string post =
      "POST /a HTTP/1.1\r\nHost: api.example.com\r\nExpect: 100-continue\r\nContent-Length: "
      "3\r\n\r\nabc";
  const std::string piece_of_chunks = "4\r\nno!!\r\n0\r\n\r\n";
  const auto [request, refusal] = GENERATE_COPY(table<std::string, std::string>(
      {{kGet, "Content-Length: 0\r\n\r\n"},
       {"HEAD" + kGet.substr(3), "Content-Length: 7\r\n\r\n"},
       {post, "Content-Length: 7\r\n\r\nrefused"},
       {post, "Transfer-Encoding: chunked\r\n\r\n" + piece_of_chunks}}));
  const size_t piece = GENERATE(1, 2, 1000);
  Exchange exchange;
  exchange.change = {{}, {{"X-Key", "old-secret"}}, {"old-secret"}};
  bool repeats = false;
  exchange.on_response([&](const egress::ResponseHead& head) {
    if (head.status == 401) repeats = exchange.repeat();
  });
  exchange.client(request);
  const std::string first = exchange.at_server();
  exchange.server("HTTP/1.1 401 No\r\n" + refusal, piece);
  CHECK(repeats);
  REQUIRE(exchange.state() == State::judging);
  CHECK(exchange.at_client().empty());
  CHECK(exchange.next() == &exchange);
  exchange.pass({{}, {{"X-Key", "new-secret"}}, {"new-secret"}});
  const std::string second = exchange.at_server();
  CHECK(second.starts_with(first.substr(0, first.find("Host"))));
  CHECK(second.find("new-secret") != std::string::npos);
  CHECK(second.find("Expect") == std::string::npos);
  CHECK(body_of(second) == body_of(first));
  exchange.server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  CHECK(exchange.at_client() == "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  CHECK(exchange.state() == State::head);
}

TEST_CASE(
    "a request is not sent again twice, nor if it is long, incomplete, or without a credential") {
  Exchange exchange;
  exchange.change.secrets = {"a-secret"};
  std::vector<bool> repeats;
  exchange.on_response([&](const egress::ResponseHead&) { repeats.push_back(exchange.repeat()); });
  const auto post = [](size_t size) {
    return "POST /a HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: " + std::to_string(size) +
           "\r\n\r\n";
  };
  const std::string refusal = "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n";
  SECTION("twice") {
    exchange.client(kGet);
    exchange.server(refusal);
    exchange.next();
    exchange.pass(exchange.change);
    exchange.server(refusal);
    CHECK(repeats == std::vector<bool>{true, false});
  }
  SECTION("long") {
    exchange.client(post(HttpExchange::kMaxKept + 1) + std::string(HttpExchange::kMaxKept + 1, 'x'),
                    10'000);
    exchange.server(refusal);
    CHECK(repeats == std::vector<bool>{false});
  }
  SECTION("incomplete") {
    exchange.client(post(10) + "x");
    exchange.server(refusal);
    CHECK(repeats == std::vector<bool>{false});
  }
  SECTION("without a credential") {
    exchange.change.secrets.clear();
    exchange.client(kGet);
    exchange.server(refusal);
    CHECK(repeats == std::vector<bool>{false});
  }
  SECTION("the host closes") {
    exchange.client(kGet);
    exchange.server("HTTP/1.1 401 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    CHECK(repeats == std::vector<bool>{false});
  }
  SECTION("a refusal without an end") {
    exchange.client(kGet);
    exchange.server("HTTP/1.1 401 No\r\nContent-Length: 1000000\r\n\r\n" +
                    std::string(HttpExchange::kMaxKept + 1, 'x'));
    CHECK(exchange.at_client().starts_with("HTTP/1.1 502 "));
    CHECK(exchange.state() == State::over);
  }
}
