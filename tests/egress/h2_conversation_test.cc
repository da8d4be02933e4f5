#include "egress/broker/h2_conversation.h"

#include <nghttp2/nghttp2.h>

#include <catch2/catch.hpp>

using namespace moorage;
using egress::Field;
using egress::Fields;
using egress::H2Conversation;
using egress::H2Session;

namespace {

const std::string kHost = "api.example.com";
const std::string kSecret = "secret-of-the-api";
constexpr size_t kPiece = 16 << 10;

std::string value(const Fields& fields, std::string_view name) {
  for (const Field& field : fields) {
    if (field.name == name) return field.value;
  }
  return {};
}

// A program or a host.
struct End : H2Session::Listener {
  explicit End(H2Session::Role role) : session(role, *this) {}
  struct Message {
    Fields head;
    Fields trailers;
    std::string body;
    bool ended = false;
    bool closed = false;
    uint32_t error = 0;
  };
  void on_fields(H2Session&, int32_t stream, Fields fields, bool) override {
    Message& message = messages[stream];
    (message.head.empty() ? message.head : message.trailers) = std::move(fields);
    last = stream;
  }
  void on_body(H2Session& at, int32_t stream, std::string_view bytes) override {
    messages[stream].body += bytes;
    if (reads) at.consumed(stream, bytes.size());
  }
  void on_body_end(H2Session&, int32_t stream) override { messages[stream].ended = true; }
  void on_body_sent(H2Session&, int32_t, size_t bytes) override { sent += bytes; }
  void on_close(H2Session&, int32_t stream, uint32_t error) override {
    messages[stream].closed = true;
    messages[stream].error = error;
  }
  void on_going_away(H2Session&) override { left = true; }

  H2Session session;
  std::map<int32_t, Message> messages;
  int32_t last = 0;
  size_t sent = 0;
  bool reads = true;
  bool left = false;
};

// The broker between the two; each request is passed with `change`.
struct Between {
  Between() : talk(kHost, 443), client(H2Session::Role::client), host(H2Session::Role::server) {}

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      std::string bytes;
      client.session.send(bytes, kPiece);
      moved = !bytes.empty() || moved;
      if (!bytes.empty() && talk.takes_from_client()) talk.from_client(bytes);
      while (egress::Exchange* const exchange = talk.next()) {
        if (!refusal.empty())
          exchange->refuse(refusal);
        else
          judge(*exchange);
      }
      talk.fill();
      moved = !talk.to_server.empty() || moved;
      if (!talk.to_server.empty()) host.session.receive(std::exchange(talk.to_server, {}));
      bytes.clear();
      host.session.send(bytes, kPiece);
      moved = !bytes.empty() || moved;
      if (!bytes.empty()) talk.from_server(bytes);
      moved = !talk.to_client.empty() || moved;
      if (!talk.to_client.empty()) client.session.receive(std::exchange(talk.to_client, {}));
      for (auto& [why, quiet] : talk.take_troubles()) troubles.push_back(std::move(why));
    }
  }
  void judge(egress::Exchange& exchange) {
    exchange.on_response([&exchange](const egress::ResponseHead& head) {
      if (head.status == 401) exchange.refuse("the credential has expired");
    });
    exchange.pass(change);
  }
  Fields usual(const std::string& path) {
    return {{":method", "POST"}, {":scheme", "https"}, {":authority", kHost}, {":path", path}};
  }
  int32_t ask(const Fields& fields, const std::string& body = "") {
    const int32_t stream = client.session.request(fields, body.empty());
    client.session.body(stream, body);
    if (!body.empty()) client.session.end(stream, {});
    run();
    return stream;
  }
  int32_t ask_grpc(const std::string& path) {
    Fields fields = usual(path);
    fields.push_back({"te", "trailers"});
    fields.push_back({"content-type", "application/grpc"});
    return ask(fields, "question");
  }
  void host_answers(const Fields& head, const std::string& body, const Fields& trailers = {}) {
    host.session.answer(host.last, head, false);
    host.session.body(host.last, body);
    host.session.end(host.last, trailers);
    run();
  }
  void use_secret() {
    change.without = {"authorization"};
    change.with = {{"Authorization", "Bearer " + kSecret}};
    change.secrets = {kSecret};
  }

  H2Conversation talk;
  End client;
  End host;
  egress::HeadChange change;
  std::string refusal;
  std::vector<std::string> troubles;
};

std::string frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
  std::string bytes;
  for (const int shift : {16, 8, 0}) bytes += static_cast<char>(payload.size() >> shift);
  bytes += {static_cast<char>(type), static_cast<char>(flags)};
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(stream >> shift);
  return bytes + payload;
}

}  // namespace

TEST_CASE("HTTP/2: a call passes with its trailers, and a secret takes the placeholder's place") {
  Between between;
  between.use_secret();
  Fields fields = between.usual("/v1.Api/Call?x=1");
  for (const Field& field : Fields{{"authorization", "Bearer moorage-credential-api"},
                                   {"accept-encoding", "gzip"},
                                   {"grpc-accept-encoding", "gzip"},
                                   {"content-type", "application/grpc+proto"},
                                   {"te", "trailers"}})
    fields.push_back(field);
  const int32_t stream = between.ask(fields, std::string(100'000, 'q'));
  const End::Message& asked = between.host.messages[between.host.last];
  CHECK(value(asked.head, ":authority") == kHost);
  CHECK(value(asked.head, ":path") == "/v1.Api/Call?x=1");
  CHECK(value(asked.head, "authorization") == "Bearer " + kSecret);
  CHECK(value(asked.head, "accept-encoding") == "identity");
  CHECK(value(asked.head, "grpc-accept-encoding") == "identity");
  CHECK(value(asked.head, "te") == "trailers");
  CHECK(asked.body == std::string(100'000, 'q'));
  CHECK(asked.ended);
  between.host_answers(
      {{":status", "200"}, {"content-type", "application/grpc"}, {"alt-svc", "h3"}}, "answer",
      {{"grpc-status", "0"}});
  const End::Message& got = between.client.messages[stream];
  CHECK(value(got.head, ":status") == "200");
  CHECK(value(got.head, "alt-svc").empty());
  CHECK(got.body == "answer");
  CHECK(value(got.trailers, "grpc-status") == "0");
  CHECK(got.closed);
  CHECK(got.error == 0);
  CHECK(between.troubles.empty());
}

TEST_CASE("HTTP/2: streams are answered as they come, in both directions at once") {
  Between between;
  const int32_t stream = between.client.session.request(between.usual("/chat"), false);
  const int32_t other = between.ask(between.usual("/other"));
  const int32_t at_host = between.host.last == 1 ? 3 : 1;
  CHECK(between.host.messages.size() == 2);
  between.host.session.answer(at_host, {{":status", "200"}}, false);
  for (int i = 0; i < 5; ++i) {
    between.client.session.body(stream, "ping");
    between.run();
    between.host.session.body(at_host, "pong");
    between.run();
  }
  CHECK(between.host.messages[at_host].body == "pingpingpingpingping");
  CHECK(between.client.messages[stream].body == "pongpongpongpongpong");
  CHECK_FALSE(between.client.messages[stream].ended);
  CHECK_FALSE(between.client.messages[other].ended);
  between.client.session.reset(stream, NGHTTP2_CANCEL);
  between.run();
  CHECK(between.host.messages[at_host].error == NGHTTP2_CANCEL);
}

TEST_CASE("HTTP/2: a stream that asks for something else is refused, and nothing of it passes") {
  const auto [change, why] = GENERATE(table<Fields, std::string>({
      {{{":authority", "other.example.com"}}, "the authority is not api.example.com"},
      {{{":authority", "api.example.com:8443"}}, "the authority is not api.example.com"},
      {{{":authority", "x@api.example.com"}}, "the authority is not api.example.com"},
      {{{":authority", ""}, {"host", "other.example.com"}}, "the authority is not api.example.com"},
      {{{"host", "other.example.com"}}, "the Host header is not api.example.com"},
      {{{":scheme", "http"}}, "the scheme is not https"},
      {{{":method", "TRACE"}}, "TRACE is not carried"},
      {{{"x-http-method-override", "PUT"}},
       "the header x-http-method-override is not carried: it changes what is asked for"},
  }));
  Between between;
  Fields fields = between.usual("/a");
  for (const Field& field : change) {
    const auto same = std::ranges::find(fields, field.name, &Field::name);
    if (same == fields.end())
      fields.push_back(field);
    else if (field.value.empty())
      fields.erase(same);
    else
      same->value = field.value;
  }
  const int32_t stream = between.ask(fields, "body");
  CHECK(between.troubles == std::vector<std::string>{why});
  CHECK(value(between.client.messages[stream].head, ":status") == "403");
  CHECK(between.client.messages[stream].body.find(why) != std::string::npos);
  CHECK(between.host.messages.empty());
  between.ask(between.usual("/good"));
  CHECK(between.host.messages.size() == 1);
}

TEST_CASE("HTTP/2: CONNECT is refused") {
  Between between;
  const int32_t stream = between.ask({{":method", "CONNECT"}, {":authority", kHost + ":443"}});
  CHECK(between.troubles == std::vector<std::string>{"CONNECT is not carried"});
  CHECK(value(between.client.messages[stream].head, ":status") == "403");
}

TEST_CASE("HTTP/2: a refused call of gRPC gets a status that its program shows") {
  Between between;
  between.use_secret();
  int32_t stream = 0;
  SECTION("by the judge") {
    between.refusal = "100 % refused";
    stream = between.ask_grpc("/x");
    CHECK(value(between.client.messages[stream].head, "grpc-message") ==
          "moorage: 100 %25 refused");
    CHECK(value(between.client.messages[stream].head, "grpc-status") == "7");
    return;
  }
  SECTION("by the host, at once") {
    stream = between.ask_grpc("/x");
    between.host.session.answer(between.host.last, {{":status", "200"}, {"grpc-status", "16"}},
                                true);
    between.run();
    CHECK(value(between.client.messages[stream].head, "grpc-status") == "7");
  }
  SECTION("by the host, with HTTP's status") {
    stream = between.ask_grpc("/x");
    between.host_answers({{":status", "401"}}, "who?");
    CHECK(value(between.client.messages[stream].head, "grpc-status") == "7");
  }
  SECTION("by the host, at the end") {
    stream = between.ask_grpc("/x");
    between.host_answers({{":status", "200"}}, "", {{"grpc-status", "16"}});
    CHECK(value(between.client.messages[stream].trailers, "grpc-status") == "7");
    CHECK(value(between.client.messages[stream].trailers, "grpc-message") ==
          "moorage: the credential has expired");
  }
  CHECK(between.troubles == std::vector<std::string>{"the credential has expired"});
}

TEST_CASE("HTTP/2: an answer that repeats the credential does not arrive") {
  const bool grpc = GENERATE(true, false);
  const Fields ok{{":status", "200"}};
  const auto [head, body, trailers] = GENERATE_COPY(table<Fields, std::string, Fields>({
      {{{":status", "302"}, {"location", "https://other/?" + kSecret}}, "", {}},
      {ok, "echo " + kSecret, {}},
      {ok, "the form for mail: c2VjcmV0LW9mLXRoZS1hcGk=", {}},
      {ok, "fine", {{"grpc-status", "3"}, {"grpc-message", "bad " + kSecret}}},
      {{{":status", "200"}, {"content-encoding", "gzip"}}, "packed", {}},
      {{{":status", "200"}, {"grpc-encoding", "gzip"}}, "packed", {}},
  }));
  Between between;
  between.use_secret();
  const int32_t stream =
      grpc ? between.ask_grpc("/x") : between.ask(between.usual("/x"), "question");
  const int32_t at_host = between.host.last;
  between.host.session.answer(at_host, head, false);
  for (const char c : body) {
    between.host.session.body(at_host, std::string(1, c));
    between.run();
  }
  between.host.session.end(at_host, trailers);
  between.run();
  const End::Message& got = between.client.messages[stream];
  std::string all = got.body;
  for (const Fields* fields : {&got.head, &got.trailers}) {
    for (const Field& field : *fields) all += field.value;
  }
  CHECK(all.find("-of-the-api") == std::string::npos);
  CHECK(all.find("lXRoZS1hcGk") == std::string::npos);
  CHECK(all.find("packed") == std::string::npos);
  CHECK(got.closed);
  const std::string status = value(got.head, "grpc-status") + value(got.trailers, "grpc-status");
  if (grpc) CHECK((status == "7" || status == "14"));
  CHECK(between.host.messages[at_host].closed);
}

TEST_CASE("HTTP/2: a side that does not read stops the other one, and little waits between") {
  Between between;
  const size_t much = 64 << 20;
  constexpr size_t kMost = 4 << 20;
  SECTION("an answer") {
    between.client.reads = false;
    between.ask(between.usual("/x"));
    between.host_answers({{":status", "200"}}, std::string(much, 'x'));
    CHECK(between.host.sent < kMost);
  }
  SECTION("a request") {
    between.host.reads = false;
    between.ask(between.usual("/x"), std::string(much, 'x'));
    CHECK(between.client.sent < kMost);
  }
  SECTION("a request that is not judged yet") {
    // Nobody asks for next().
    End client(H2Session::Role::client);
    H2Conversation talk(kHost, 443);
    const int32_t stream = client.session.request(between.usual("/x"), false);
    client.session.body(stream, std::string(much, 'x'));
    for (int i = 0; i < 1'000; ++i) {
      std::string bytes;
      client.session.send(bytes, kPiece);
      talk.from_client(bytes);
      client.session.receive(std::exchange(talk.to_client, {}));
    }
    CHECK(client.sent < kMost);
  }
}

TEST_CASE("HTTP/2: windows do not leak: many bodies pass, also of streams that end early") {
  Between between;
  for (int i = 0; i < 60; ++i) {
    const int32_t stream = between.client.session.request(between.usual("/x"), false);
    between.client.session.body(stream, std::string(100'000, 'q'));
    between.run();
    between.host.session.answer(between.host.last, {{":status", "200"}}, false);
    between.host.session.body(between.host.last, std::string(100'000, 'a'));
    between.run();
    CHECK(between.client.messages[stream].body.size() == 100'000);
    CHECK(between.host.messages[between.host.last].body.size() == 100'000);
    if (i % 3 == 0) between.client.session.reset(stream, NGHTTP2_CANCEL);
    if (i % 3 == 1) between.host.session.reset(between.host.last, NGHTTP2_INTERNAL_ERROR);
    if (i % 3 == 2) between.host.session.end(between.host.last, {});
    between.run();
    CHECK(between.client.messages[stream].closed);
  }
}

TEST_CASE("HTTP/2: bytes of a stream that ends take no room from others") {
  const std::string much(1 << 20, 'x');
  Between between;
  for (int i = 0; i < 20; ++i) {
    between.client.reads = between.host.reads = false;
    const int32_t stream = between.client.session.request(between.usual("/x"), false);
    between.client.session.body(stream, much);
    between.run();
    between.host.session.answer(between.host.last, {{":status", "200"}}, false);
    between.host.session.body(between.host.last, much);
    between.run();
    if (i % 2 == 0) between.client.session.reset(stream, NGHTTP2_CANCEL);
    if (i % 2 == 1) between.host.session.reset(between.host.last, NGHTTP2_INTERNAL_ERROR);
    between.run();
    CHECK(between.client.messages[stream].closed);
  }
  between.client.reads = between.host.reads = true;
  const int32_t stream = between.ask(between.usual("/x"), much);
  CHECK(between.host.messages[between.host.last].body.size() == much.size());
  between.host_answers({{":status", "200"}}, much);
  CHECK(between.client.messages[stream].body.size() == much.size());
}

TEST_CASE("HTTP/2: floods end the connection, and memory is bounded meanwhile") {
  const std::string settings = frame(4, 0, 0, "");
  // HPACK: POST, https, / and the authority.
  const std::string head = "\x83\x87\x84\x41\x0f" + kHost;
  const std::string flood =
      GENERATE("ping", "settings", "continuation", "reset", "bomb", "nonsense");
  Between between;
  H2Conversation& talk = between.talk;
  talk.from_client("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings);
  uint32_t stream = 1;
  int rounds = 0;
  if (flood == "continuation" || flood == "bomb") talk.from_client(frame(1, 0, 1, head));
  for (; rounds < 20'000 && !talk.is_over(); ++rounds, stream += 2) {
    if (flood == "ping") talk.from_client(frame(6, 0, 0, "12345678"));
    if (flood == "settings") talk.from_client(settings);
    if (flood == "continuation") talk.from_client(frame(9, 0, 1, ""));
    if (flood == "bomb") talk.from_client(frame(9, 0, 1, std::string(16'000, '\x84')));
    if (flood == "nonsense") talk.from_client("GET / HTTP/1.1\r\n\r\n");
    if (flood == "reset") {
      talk.from_client(frame(1, 5, stream, head) +
                       frame(3, 0, stream, std::string("\0\0\0\x8", 4)));
      talk.to_client.clear();
    }
    while (egress::Exchange* const exchange = talk.next()) exchange->pass({});
    talk.to_server.clear();
    if (talk.take_troubles().size() > 0) talk.to_client.clear();
    talk.fill();
  }
  CHECK(talk.is_over());
  CHECK(rounds < 10'000);
  CHECK(talk.to_client.size() < 1 << 20);
}

TEST_CASE("HTTP/2: more streams than may be open, and heads that are too large, are refused") {
  Between between;
  SECTION("streams") {
    for (uint32_t i = 0; i < 4 * H2Session::kStreams; ++i)
      between.client.session.request(between.usual("/x"), false);
    between.run();
    CHECK(between.host.messages.size() == H2Session::kStreams);
  }
  SECTION("one field too many") {
    Fields fields = between.usual("/x");
    for (size_t i = 0; i < H2Session::kMaxFields; ++i) fields.push_back({"x-one", "1"});
    const int32_t stream = between.ask(fields);
    CHECK(between.client.messages[stream].error != 0);
    CHECK(between.host.messages.empty());
  }
}

TEST_CASE("HTTP/2: what a host may not send ends the connection, and open calls are answered") {
  Between between;
  const int32_t stream = between.ask(between.usual("/x"));
  SECTION("a push") {
    between.talk.from_server(
        frame(5, 4, 1, std::string("\0\0\0\2", 4) + "\x82\x87\x84\x41\x0f" + kHost));
  }
  SECTION("HTTP/1.1") { between.talk.from_server("HTTP/1.1 400 Bad Request\r\n\r\n"); }
  SECTION("its end") { between.talk.server_ended(); }
  between.run();
  CHECK(value(between.client.messages[stream].head, ":status") == "502");
  CHECK(between.client.left);
  CHECK(between.talk.is_over());
}

TEST_CASE("HTTP/2: a host that goes away ends its calls, and the client opens a new connection") {
  Between between;
  const int32_t stream = between.ask(between.usual("/x"));
  between.host.session.go_away();
  between.run();
  CHECK(between.client.left);
  CHECK_FALSE(between.talk.is_over());
  between.host_answers({{":status", "200"}}, "last");
  CHECK(between.client.messages[stream].body == "last");
  CHECK(between.talk.is_over());
}
