#include "cli/client/http_client.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/os/files.h"
#include "cli/client/api.h"
#include "cli/client/json.h"
#include "scripted_server.h"

using namespace moorage;
using namespace moorage::cli;
using base::Code;
using base::Error;
using test::Call;
using test::ScriptedServer;

namespace {

template <typename Act>
Error error_of(Act act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::internal, "nothing was thrown");
}

}  // namespace

TEST_CASE("one connection carries exchange after exchange") {
  ScriptedServer server([](Call& call) { call.reply(200, call.path + call.body()); });
  HttpConnection connection(server.socket_path());
  for (int i = 0; i < 5; ++i) {
    HttpRequest request{"POST", "/a" + std::to_string(i), {}, "body", {}};
    CHECK(connection.exchange(request).body == "/a" + std::to_string(i) + "body");
  }
}

TEST_CASE("an upload after a pause takes a new connection if the daemon closed the idle one") {
  ScriptedServer server([](Call& call) {
    const std::string body = call.body();
    call.reply(200, body);
    if (call.method == "GET") call.drop();
  });
  Api api(server.socket_path());
  api.get("/v1/repos/import");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // git packs a history
  bool sent = false;
  CHECK(api.upload("POST", "/v1/repos/import", [&](char* buffer, size_t room) -> size_t {
    if (sent) return 0;
    sent = true;
    return std::string_view("bundle").copy(buffer, room);
  }) == "bundle");
}

TEST_CASE("streamed bodies and streamed answers arrive complete") {
  std::string sent;
  for (int i = 0; i < 3'000'000; ++i) sent += static_cast<char>(i * 7);
  ScriptedServer server([](Call& call) {
    const std::string body = call.body();
    call.begin(200);
    for (size_t at = 0; at < body.size(); at += 100'000) call.chunk(body.substr(at, 100'000));
    call.end();
  });
  HttpConnection connection(server.socket_path());
  size_t at = 0;
  HttpRequest request{"PUT", "/x", {}, {}, [&](char* buffer, size_t size) {
                        const size_t n = sent.copy(buffer, size, at);
                        at += n;
                        return n;
                      }};
  std::string got;
  ExchangeOptions options;
  options.sink = [&](std::string_view bytes) { got.append(bytes); };
  CHECK(connection.exchange(request, options).ok());
  CHECK(got == sent);
}

TEST_CASE("an answer before the body was sent stops the sending") {
  ScriptedServer server([](Call& call) {
    call.reply(507, R"({"code":"resource_exhausted","message":"disk full"})",
               "Connection: close\r\n");
  });
  Api api(server.socket_path());
  const std::string block(1 << 16, 'x');
  const Error error = error_of([&] {
    api.upload("PUT", "/v1/file",
               [&](char* buffer, size_t size) { return block.copy(buffer, size); });
  });
  CHECK(error.code() == Code::resource_exhausted);
  CHECK(error.message() == "disk full");
}

TEST_CASE("a missing daemon and missing permission come with a hint") {
  const Error nobody = error_of([] { Api("/nonexistent/sock").get("/v1/info"); });
  CHECK(nobody.code() == Code::unavailable);
  CHECK(nobody.message() ==
        "cannot reach the daemon at /nonexistent/sock: the socket does not exist");
  const bool systemd = base::path_exists("/run/systemd/system");
  CHECK(nobody.hint() ==
        "start it with: sudo " +
            std::string(systemd ? "systemctl start moorage" : "sh -c 'setsid mooraged &'") +
            "  or  sudo ./quickstart");
}

TEST_CASE("an error answer becomes the error that the daemon sent") {
  ScriptedServer server([](Call& call) {
    call.reply(404,
               R"({"code":"not_found","message":"there is no workspace 'x'","hint":"moorage ls"})");
  });
  Api api(server.socket_path());
  const Error error = error_of([&] { api.get("/v1/workspaces/x"); });
  CHECK(error.code() == Code::not_found);
  CHECK(error.message() == "there is no workspace 'x'");
  CHECK(error.hint() == "moorage ls");
}

TEST_CASE("a request with a lost answer is repeated with the same key") {
  std::atomic<int> calls{0};
  ScriptedServer server([&](Call& call) {
    call.body();
    if (++calls < 3) return call.drop();
    call.reply(200, R"({"done":true})");
  });
  Api api(server.socket_path());
  CHECK(Json::parse(api.send("POST", "/v1/workspaces/a/stop")).flag("done"));
  const auto seen = server.seen();
  REQUIRE(seen.size() == 3);
  CHECK(seen[0].headers.at("idempotency-key") == seen[2].headers.at("idempotency-key"));
  api.send("POST", "/v1/workspaces/a/stop");
  CHECK(server.seen()[3].headers.at("idempotency-key") != seen[0].headers.at("idempotency-key"));
}

TEST_CASE("a partial answer counts as lost") {
  std::atomic<int> calls{0};
  ScriptedServer server([&](Call& call) {
    if (++calls > 1) return call.reply(200, "{}");
    call.begin(200);
    call.chunk("{\"half\":");
    call.drop();
  });
  Api api(server.socket_path());
  CHECK(api.get("/v1/info") == "{}");
  CHECK(calls == 2);
}

TEST_CASE("long verbs show their progress and end in a result or an error") {
  ScriptedServer server([](Call& call) {
    const bool fails = call.path == "/v1/fails";
    call.begin(200, "Content-Type: application/x-ndjson\r\n");
    call.chunk(
        "{\"progress\":{\"phase\":\"fetch\",\"percent\":10,\"text\":\"a\"}}\n{\"progress\":{\"ph");
    call.chunk("ase\":\"checkout\",\"percent\":90,\"text\":\"b\"}}\n");
    call.chunk(fails ? "{\"error\":{\"code\":\"unavailable\",\"message\":\"upstream\"}}\n"
                     : "{\"result\":{\"id\":\"ws_1\"}}");
    call.end();
  });
  Api api(server.socket_path());
  std::string phases;
  const auto on_progress = [&](const Json& json) { phases += json.text("phase") + " "; };
  CHECK(Json::parse(api.send_long("POST", "/v1/works", "{}", on_progress)).text("id") == "ws_1");
  CHECK(phases == "fetch checkout ");
  // An error that the daemon reports is its answer, though the code sounds like a lost connection.
  const Error error = error_of([&] { api.send_long("POST", "/v1/fails", "{}", on_progress); });
  CHECK(error.message() == "upstream");
  CHECK(server.count("POST /v1/fails") == 1);
}

TEST_CASE("a plain answer to a long verb is a result, too") {
  ScriptedServer server(
      [](Call& call) { call.reply(201, "{\"id\":\n\"ws_1\"}", test::json_header()); });
  Api api(server.socket_path());
  CHECK(Json::parse(api.send_long("POST", "/v1/workspaces", "{}", {})).text("id") == "ws_1");
}

TEST_CASE("cancel ends a waiting exchange") {
  ScriptedServer server([](Call& call) {
    while (call.client_waits()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  HttpConnection connection(server.socket_path());
  std::thread canceller([&] {
    while (server.seen().empty()) std::this_thread::yield();
    connection.cancel();
  });
  CHECK(error_of([&] { connection.exchange({}); }).code() == Code::unknown_outcome);
  canceller.join();
  const size_t before = server.seen().size();
  CHECK(error_of([&] { connection.exchange({}); }).code() == Code::unknown_outcome);
  CHECK(server.seen().size() == before);  // not even sent
}

TEST_CASE("silence ends with a timeout") {
  ScriptedServer server([](Call& call) {
    while (call.client_waits()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  HttpConnection connection(server.socket_path());
  ExchangeOptions options;
  options.silence_timeout_ms = 50;
  CHECK(error_of([&] { connection.exchange({}, options); }).code() == Code::unknown_outcome);
}

TEST_CASE("a target may contain any bytes") {
  CHECK(percent_encode("a b/c\xff?&") == "a%20b%2Fc%FF%3F%26");
  CHECK(percent_encode("a/b", true) == "a/b");
}
