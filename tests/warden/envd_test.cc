// The envd API as used by E2B's SDK: streams, Connect, keep-alives, errors.
#include <signal.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <thread>

#include "raw_http.h"
#include "warden_process.h"

using namespace moorage;
using namespace moorage::test;

namespace {

std::string start_json(const std::string& script, const std::string& rest = "") {
  return "{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"" + script +
         "\"],\"envs\":{\"PATH\":\"/usr/bin:/bin\"},\"cwd\":\"/tmp\"},\"stdin\":false" + rest + "}";
}

}  // namespace

TEST_CASE("a stream has the start, output and end events in E2B's format") {
  WardenProcess warden;
  RawHttp http(warden.socket_path());
  http.send(stream("Start", start_json("echo hi; exit 3")));
  REQUIRE(http.wait_for("0\r\n\r\n"));
  CHECK_THAT(http.received(),
             Catch::Contains("Content-Type: application/connect+json") &&
                 Catch::Contains("{\"event\":{\"start\":{\"pid\":") &&
                 Catch::Contains("{\"event\":{\"data\":{\"stdout\":\"aGkK\"}}}") &&
                 Catch::Contains("{\"event\":{\"end\":{\"exitCode\":3,\"exited\":true,"
                                 "\"status\":\"exit status 3\",\"error\":\"exit status 3\"}}}"));
}

TEST_CASE("a missing program or directory is invalid_argument on the stream") {
  WardenProcess warden;
  for (std::string json :
       {R"({"process":{"cmd":"no-such-command","cwd":"/tmp"}})",
        R"({"process":{"cmd":"true","cwd":"/no/such"}})",
        R"({"process":{"cmd":"true","cwd":"/proc/self/fd/3"}})", R"({"process":3})"}) {
    RawHttp http(warden.socket_path());
    http.send(stream("Start", json));
    REQUIRE(http.wait_for("0\r\n\r\n"));
    CHECK_THAT(http.received(), Catch::StartsWith("HTTP/1.1 200") &&
                                    Catch::Contains("{\"error\":{\"code\":\"invalid_argument\""));
  }
}

TEST_CASE("a dropped connection does not kill the command and Connect finds it again") {
  WardenProcess warden;
  const std::string go = warden.directory() + "/go";
  RawHttp first(warden.socket_path());
  first.send(stream(
      "Start", start_json("echo early; while [ ! -e " + go + " ]; do sleep 0.01; done; echo later",
                          ",\"tag\":\"t\"")));
  REQUIRE(first.wait_for("ZWFybHkK"));  // early
  first.disconnect();
  RawHttp second(warden.socket_path());
  second.send(stream("Connect", R"({"process":{"tag":"t"}})"));
  REQUIRE(second.wait_for("\"start\":{\"pid\":"));
  std::ofstream(go) << "";
  REQUIRE(second.wait_for("0\r\n\r\n"));
  CHECK_THAT(second.received(), Catch::Contains("bGF0ZXIK") && !Catch::Contains("ZWFybHkK") &&
                                    Catch::Contains("\"exitCode\":0"));
  // Late: the end is kept for a while.
  RawHttp third(warden.socket_path());
  third.send(stream("Connect", R"({"process":{"tag":"t"}})"));
  REQUIRE(third.wait_for("0\r\n\r\n"));
  CHECK_THAT(third.received(), Catch::Contains("\"start\"") && Catch::Contains("\"exitCode\":0"));
  RawHttp none(warden.socket_path());
  none.send(stream("Connect", R"({"process":{"tag":"other"}})"));
  REQUIRE(none.wait_for("\"code\":\"not_found\""));
}

TEST_CASE("unary calls return their error's status and keep the connection") {
  WardenProcess warden;
  RawHttp http(warden.socket_path());
  http.send(unary("SendSignal", R"({"process":{"pid":4000000},"signal":"SIGNAL_SIGKILL"})"));
  REQUIRE(http.wait_for("\"code\":\"not_found\""));
  http.send(unary("List", "{}"));
  REQUIRE(http.wait_for("{\"processes\":[]}"));
  http.send(unary("StreamInput", "{}"));
  REQUIRE(http.wait_for("HTTP/1.1 501"));
  http.send("GET /health HTTP/1.1\r\n\r\n");
  REQUIRE(http.wait_for("HTTP/1.1 204"));
  http.send("GET /metrics HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\nConnection: close\r\n\r\n");
  REQUIRE(http.wait_for("cpu_count"));
  CHECK(http.wait_for_close());
  CHECK(http.received().find("Connection: close") != std::string::npos);
}

TEST_CASE("signals by E2B's names and by number reach the command's group") {
  WardenProcess warden;
  for (std::string signal : {"\"SIGNAL_SIGTERM\"", "\"SIGNAL_SIGUSR1\"", "\"SIGHUP\"", "9"}) {
    RawHttp http(warden.socket_path());
    http.send(stream("Start", start_json("sleep 100; :", ",\"tag\":\"s\"")));
    REQUIRE(http.wait_for("\"start\""));
    RawHttp control(warden.socket_path());
    control.send(unary("SendSignal", "{\"process\":{\"tag\":\"s\"},\"signal\":" + signal + "}"));
    REQUIRE(control.wait_for("HTTP/1.1 200"));
    REQUIRE(http.wait_for("0\r\n\r\n"));
    CHECK_THAT(http.received(),
               Catch::Contains("\"exitCode\":-1,\"exited\":false,\"status\":\"signal: "));
  }
  RawHttp wrong(warden.socket_path());
  wrong.send(unary("SendSignal", R"({"process":{"tag":"s"},"signal":"SIGNAL_NONSENSE"})"));
  CHECK(wrong.wait_for("HTTP/1.1 4"));
}

TEST_CASE("Connect-Timeout-Ms kills the command with deadline_exceeded") {
  WardenProcess warden;
  RawHttp http(warden.socket_path());
  http.send(stream("Start", start_json("sleep 100"), "Connect-Timeout-Ms: 200\r\n"));
  REQUIRE(http.wait_for("0\r\n\r\n", 3000));
  CHECK_THAT(http.received(),
             Catch::Contains("signal: killed") && Catch::Contains("deadline_exceeded"));
}

TEST_CASE("a quiet stream is kept alive") {
  WardenProcess warden;
  RawHttp http(warden.socket_path());
  http.send(stream("Start", start_json("sleep 1.5"), "Keepalive-Ping-Interval: 1\r\n"));
  CHECK(http.wait_for("{\"event\":{\"keepalive\":{}}}", 3000));
  CHECK(http.wait_for("\"exitCode\":0", 3000));
}

TEST_CASE("a listener that stops reading delays the command and then gets everything") {
  WardenProcess warden;
  const std::string done = warden.directory() + "/done";
  RawHttp http(warden.socket_path());
  http.send(stream("Start", start_json("head -c 20000000 /dev/zero; echo $? >" + done),
                   "Moorage-User: root\r\n"));
  std::this_thread::sleep_for(500ms);
  CHECK(!std::ifstream(done).good());
  CHECK(warden.client().healthy(1s));
  REQUIRE(http.wait_for("\"exitCode\":0", 20'000));
  size_t base64_bytes =
      static_cast<size_t>(std::count(http.received().begin(), http.received().end(), 'A'));
  CHECK(base64_bytes >= 20'000'000 / 3 * 4 - 100);
}

TEST_CASE("standard input over the plain API is appended in order") {
  WardenProcess warden;
  RawHttp http(warden.socket_path());
  http.send(
      stream("Start", R"({"process":{"cmd":"cat","envs":{"PATH":"/bin"},"cwd":"/"},"tag":"in"})"));
  REQUIRE(http.wait_for("\"start\""));
  RawHttp control(warden.socket_path());
  control.send(unary("SendInput", R"({"process":{"tag":"in"},"input":{"stdin":"aGkK"}})"));
  REQUIRE(control.wait_for("{\"accepted\":\"3\""));
  control.send(unary("SendInput", R"({"process":{"tag":"in"},"input":{"stdin":"!"}})"));
  REQUIRE(control.wait_for("invalid base64"));
  control.send(unary("CloseStdin", R"({"process":{"tag":"in"}})"));
  REQUIRE(http.wait_for("\"exitCode\":0"));
  CHECK_THAT(http.received(), Catch::Contains("aGkK"));
}

TEST_CASE("the user comes from the request") {
  WardenProcess warden;
  RawHttp http(warden.socket_path());
  http.send(stream("Start", start_json("id -u"), "Authorization: Basic cm9vdDo=\r\n"));
  CHECK(http.wait_for("{\"stdout\":\"MAo=\"}"));  // 0
  RawHttp standard(warden.socket_path());
  standard.send(stream("Start", start_json("id -u")));
  CHECK(standard.wait_for("{\"stdout\":\"MTAwMAo=\"}"));  // 1000
}
