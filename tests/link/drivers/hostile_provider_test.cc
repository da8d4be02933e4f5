// The drivers and their HTTP client against servers that fail, stall, lie or attack.
#include <signal.h>
#include <sys/resource.h>

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <thread>

#include "base/digest.h"
#include "base/error.h"
#include "base/wire/text_stream.h"
#include "link/driver.h"
#include "link/drivers/provider_api.h"
#include "link/drivers/scripted_server.h"
#include "link/http/websocket.h"
#include "thrown_code.h"

namespace moorage::link_test {
namespace {

using link::after;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

const link::Labels kLabels{{"moorage-store", "ab12"}};
const link::Machine kMachine{"i1", link::MachineState::running, {}, "/d"};
const auto kProviders = {"e2b", "daytona"};

std::unique_ptr<link::Driver> driver_for(const std::string& provider, const ScriptedServer& server,
                                         const std::string& more = "") {
  signal(SIGPIPE, SIG_IGN);  // as moorage-link does
  const std::string url = server.url();
  return link::make_driver(provider, {R"({"api_url":")" + url + R"(","sandbox_url":")" + url +
                                          R"(","toolbox_url":")" + url + "\"" + more + "}",
                                      "secret-key"});
}

std::string empty_list(const std::string& provider) {
  return answer(200, provider == "e2b" ? "[]" : R"({"items":[]})");
}

// The error that a call on this server ends with; its text never has the key.
Error error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    CHECK((error.message() + error.hint()).find("secret-key") == std::string::npos);
    return error;
  }
  FAIL("no error was thrown");
  return Error(Code::internal, "none");
}

uint64_t peak_kb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6));
  }
  return 0;
}

void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

TEST_CASE("429 with Retry-After is waited for", "[hostile]") {
  const std::string provider = GENERATE(values(kProviders));
  std::atomic<int> asked{0};
  const ScriptedServer server([&](const Received&, Connection& to) {
    if (++asked == 1) return to.write(answer(429, R"({"message":"slow"})", "Retry-After: 2\r\n"));
    return to.write(empty_list(provider));
  });
  const auto begun = Clock::now();
  CHECK(driver_for(provider, server)->find(kLabels, after(seconds(30))).empty());
  CHECK(Clock::now() - begun >= seconds(2));
  CHECK(asked == 2);
}

TEST_CASE("a server that never stops sending is left at the deadline, or when cancelled",
          "[hostile]") {
  signal(SIGPIPE, SIG_IGN);
  const ScriptedServer server([](const Received&, Connection& to) {
    const std::string piece = "1000\r\n" + std::string(0x1000, 'x') + "\r\n";
    bool there = to.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    while (there) there = to.write(piece);
    return false;
  });
  const link::Cancel cancel;
  link::HttpClient client(link::parse_origin(server.url(), true), link::make_trust(""), cancel);
  const auto read_all = [&client](link::Deadline deadline) {
    const auto reader = client.open_stream({}, after(seconds(20)));
    std::string piece(1 << 16, '\0');
    while (reader->read(piece, deadline) > 0) continue;
  };
  const auto begun = Clock::now();
  CHECK(error_of([&] { read_all(after(milliseconds(200))); }).code() == Code::deadline_exceeded);
  std::thread later([&cancel] {
    std::this_thread::sleep_for(milliseconds(200));
    cancel.cancel();
  });
  CHECK(error_of([&] { read_all(link::Deadline::max()); }).message() == "cancelled");
  later.join();
  CHECK(Clock::now() - begun < seconds(20));
}

TEST_CASE("a Retry-After beyond the deadline ends the call at once, with the reason", "[hostile]") {
  const std::string provider = GENERATE(values(kProviders));
  const ScriptedServer server([](const Received&, Connection& to) {
    return to.write(answer(429, R"({"message":"too many"})", "Retry-After: 900\r\n"));
  });
  const auto begun = Clock::now();
  const auto driver = driver_for(provider, server);
  const Error error = error_of([&] { driver->find(kLabels, after(seconds(20))); });
  CHECK(error.code() == Code::resource_exhausted);
  CHECK(error.message() ==
        provider + ": cannot list sandboxes: HTTP 429: too many; it asks to wait 900 s");
  CHECK(Clock::now() - begun < seconds(10));
}

TEST_CASE("500 is retried with growing pauses until the deadline", "[hostile]") {
  const std::string provider = GENERATE(values(kProviders));
  const ScriptedServer server(
      [](const Received&, Connection& to) { return to.write(answer(500, "<html>oops\x1b[2J")); });
  const auto driver = driver_for(provider, server);
  const Error error = error_of([&] { driver->find(kLabels, after(seconds(3))); });
  CHECK(error.code() == Code::unavailable);
  CHECK(error.message() == provider + ": cannot list sandboxes: HTTP 500: <html>oops [2J");
  CHECK(server.requests() >= 3);
  CHECK(server.requests() <= 7);
}

TEST_CASE("a refusal is final, and says what to do", "[hostile]") {
  const std::string provider = GENERATE(values(kProviders));
  const ScriptedServer server([](const Received&, Connection& to) {
    return to.write(answer(401, R"({"message":"bad key"})"));
  });
  const auto driver = driver_for(provider, server);
  const Error error = error_of([&] { driver->make(kLabels, after(seconds(20))); });
  CHECK(error.code() == Code::permission_denied);
  CHECK(error.hint() == "check the key of the provider, and what it may do");
  CHECK(server.requests() == 1);
}

TEST_CASE("a server that stalls or drips costs no more than the deadline", "[hostile]") {
  const std::string provider = GENERATE(values(kProviders));
  const std::string how = GENERATE("silent", "head", "body");
  CAPTURE(provider, how);
  std::atomic<bool> over{false};
  const ScriptedServer server([&](const Received&, Connection& to) {
    if (how == "body") to.write("HTTP/1.1 200 X\r\nContent-Length: 100000\r\n\r\n");
    if (how == "head") to.write("HTTP/1.1 200 X\r\nA: ");
    while (!over && (how == "silent" || to.write("x")))
      std::this_thread::sleep_for(milliseconds(50));
    return false;
  });
  const auto begun = Clock::now();
  const auto driver = driver_for(provider, server);
  const Error error = error_of([&] { driver->find(kLabels, after(milliseconds(1'500))); });
  CHECK(error.code() == Code::deadline_exceeded);
  CHECK(Clock::now() - begun < seconds(10));
  over = true;
}

TEST_CASE("hostile answers are refused in bounded memory", "[hostile]") {
  const std::string provider = GENERATE(values(kProviders));
  const std::string how = GENERATE("head", "line", "body", "chunk line", "chunks", "depth",
                                   "garbage", "array", "types", "ids", "informational");
  CAPTURE(provider, how);
  const std::string much(1 << 20, 'x');
  const std::string chunked = "HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n";
  const auto endless = [&](Connection& to, const std::string& first, const std::string& again) {
    bool goes_on = to.write(first);
    for (int i = 0; goes_on && i < 512; ++i) goes_on = to.write(again);
    return false;
  };
  const ScriptedServer server([&](const Received&, Connection& to) {
    if (how == "head") return endless(to, "HTTP/1.1 200 X\r\n", "A: " + much + "\r\n");
    if (how == "line") return endless(to, "HTTP/1.1 200 ", much);
    if (how == "body")
      return endless(to, "HTTP/1.1 200 X\r\nContent-Length: 900000000\r\n\r\n", much);
    if (how == "chunk line") return endless(to, chunked + "1;a=", much);
    if (how == "chunks") return endless(to, chunked, "100000\r\n" + much + "\r\n");
    if (how == "depth") return to.write(answer(200, std::string(1 << 20, '[')));
    if (how == "garbage") return to.write("\x16\x03\x01\x02 what is this\r\n\r\n");
    if (how == "array") return to.write(answer(200, "[[],{},3]"));
    if (how == "types")
      return to.write(answer(
          200, provider == "e2b" ? R"([{"sandboxID":{"a":1}}])" : R"({"items":[{"id":7}]})"));
    if (how == "ids")
      return to.write(answer(200, provider == "e2b" ? R"([{"sandboxID":"../../x"}])"
                                                    : R"({"items":[{"id":"a/b?c"}]})"));
    return to.write("HTTP/1.1 103 X\r\n\r\nHTTP/1.1 103 X\r\n\r\n");
  });
  const auto driver = driver_for(provider, server);
  reset_peak();
  const uint64_t before = peak_kb();
  const Error error = error_of([&] { driver->find(kLabels, after(seconds(30))); });
  INFO(error.message());
  CHECK(error.code() == Code::corrupted);
  CHECK(peak_kb() - before < (64 << 10));
}

TEST_CASE("a list that never ends is refused", "[hostile]") {
  const std::string provider = GENERATE(values(kProviders));
  const ScriptedServer server([&](const Received&, Connection& to) {
    return to.write(provider == "e2b" ? answer(200, "[]", "x-next-token: again\r\n")
                                      : answer(200, R"({"items":[],"nextCursor":"again"})"));
  });
  const auto driver = driver_for(provider, server);
  CHECK(code_thrown_by([&] { driver->find(kLabels, after(seconds(60))); }) == Code::corrupted);
  CHECK(server.requests() <= 100);
}

TEST_CASE("machines without our labels are not ours, whatever the provider's filter", "[hostile]") {
  const std::string provider = GENERATE(values(kProviders));
  const ScriptedServer server([&](const Received&, Connection& to) {
    return to.write(answer(200, provider == "e2b" ? R"([{"sandboxID":"i1","state":"running"},
                       {"sandboxID":"i2","state":"running","metadata":{"moorage-store":"zz"}}])"
                                                  : R"({"items":[{"id":"i1","state":"started"},
                       {"id":"i2","state":"started","labels":{"moorage-store":"zz"}}]})"));
  });
  CHECK(driver_for(provider, server)->find(kLabels, after(seconds(30))).empty());
}

TEST_CASE("a machine that would see the base trees of others is refused", "[hostile]") {
  const std::string subpath = GENERATE(R"(,"subpath":"")", "", R"(,"subpath":null)");
  const ScriptedServer server([&](const Received&, Connection& to) {
    return to.write(answer(200, R"({"id":"i1","state":"started","volumes":[{"volumeId":"v1",)"
                                R"("mountPath":"/mnt/moorage-trees")" +
                                    subpath + "}]}"));
  });
  const Error error =
      error_of([&] { driver_for("daytona", server)->resume(kMachine, after(seconds(30))); });
  CHECK(error.code() == Code::unsupported);
  CHECK(error.hint().find("volume") != std::string::npos);
}

TEST_CASE("a token cannot put a header into a request", "[hostile]") {
  std::atomic<bool> injected{false};
  const ScriptedServer server([&](const Received& request, Connection& to) {
    if (request.head.find("Evil") != std::string::npos) injected = true;
    return to.write(
        answer(200, R"({"sandboxID":"i1","state":"running","envdAccessToken":"a\r\nEvil: 1"})"));
  });
  const auto driver = driver_for("e2b", server);
  CHECK(code_thrown_by([&] { driver->run(kMachine, {"/bin/true"}, after(seconds(20))); }) ==
        Code::corrupted);
  CHECK_FALSE(injected);
}

std::string envelope(const std::string& message, char flags = 0) {
  std::string text(1, flags);
  for (int shift = 24; shift >= 0; shift -= 8)
    text += static_cast<char>(message.size() >> shift & 0xff);
  return text + message;
}

TEST_CASE("streams of envd that break the protocol end with an error", "[hostile]") {
  const std::string start = envelope(R"({"event":{"start":{"pid":7}}})");
  const std::string data = envelope(R"({"event":{"data":{"stdout":"aGVsbG8="}}})");
  const std::string how =
      GENERATE("too large", "compressed", "base64", "cut", "no end", "error", "types", "deep");
  CAPTURE(how);
  const ScriptedServer server([&](const Received& request, Connection& to) {
    if (!request.is("POST /process.Process/Start"))
      return to.write(answer(200, R"({"sandboxID":"i1","state":"running"})"));
    std::string stream = start + data;
    if (how == "too large") stream += std::string("\0\x7f\xff\xff\xff", 5);
    if (how == "compressed") stream += envelope("{}", 1);
    if (how == "base64") stream += envelope(R"({"event":{"data":{"stdout":"%%%%"}}})");
    if (how == "cut") stream += data.substr(0, 9);
    if (how == "no end") stream += envelope("{}", 2);
    if (how == "error")
      stream += envelope(R"({"error":{"code":"unavailable","message":"gone"}})", 2);
    if (how == "types") stream += envelope(R"({"event":[1,2]})");
    if (how == "deep") stream += envelope(std::string(100'000, '['));
    to.write("HTTP/1.1 200 X\r\nContent-Length: " + std::to_string(stream.size() + 1) + "\r\n\r\n" +
             stream);
    return false;
  });
  const auto driver = driver_for("e2b", server);
  const auto run = driver->run(kMachine, {"/bin/cat"}, after(seconds(20)));
  std::string received;
  std::array<char, 4096> piece;
  const auto end = after(seconds(20));
  while (Clock::now() < end) {
    if (!base::wait_readable(run->stream(), 100)) continue;
    const ssize_t size = ::read(run->stream(), piece.data(), piece.size());
    if (size <= 0) break;
    received.append(piece.data(), static_cast<size_t>(size));
  }
  CHECK(received == "hello");
  REQUIRE(run->reason());
}

// A WebSocket whose server sends `frames`, then closes the connection.
std::string read_websocket(const std::string& frames, bool right_key = true) {
  const ScriptedServer server([&](const Received& request, Connection& to) {
    const size_t at = request.head.find("Sec-WebSocket-Key: ") + 19;
    const std::string key = request.head.substr(at, request.head.find('\r', at) - at);
    std::string raw;
    const std::string hex = base::sha1_hex(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    for (size_t i = 0; i < hex.size(); i += 2)
      raw += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    to.write(
        "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Accept: " +
        (right_key ? base::base64_text(raw) : "no") + "\r\n\r\n" + frames);
    return false;
  });
  const link::Cancel cancel;
  link::HttpClient client(link::parse_origin(server.url(), false), nullptr, cancel);
  link::HttpResponse refusal;
  const auto socket = link::WebSocket::open(client, {}, after(seconds(20)), refusal);
  REQUIRE(socket);
  std::string all;
  for (std::string bytes; socket->receive(bytes);) all += bytes;
  return all;
}

std::string frame(uint8_t first, const std::string& payload) {
  std::string text(1, static_cast<char>(first));
  if (payload.size() < 126) return text + static_cast<char>(payload.size()) + payload;
  text += '\x7e';
  text += static_cast<char>(payload.size() >> 8);
  return text + static_cast<char>(payload.size() & 0xff) + payload;
}

TEST_CASE("a WebSocket is read in whatever frames it comes", "[hostile]") {
  const std::string large(60'000, 'y');
  const std::string close = frame(0x88, std::string("\x03\xe8", 2));
  CHECK(read_websocket(frame(0x82, "hello") + close) == "hello");
  CHECK(read_websocket(frame(0x01, "he") + frame(0x89, "ping") + frame(0x00, "") +
                       frame(0x80, "llo") + frame(0x82, large) + close) == "hello" + large);
  CHECK(read_websocket(close).empty());
}

TEST_CASE("a WebSocket that breaks the protocol, or is cut, is an error", "[hostile]") {
  CHECK(code_thrown_by([] { read_websocket("", false); }) == Code::corrupted);
  CHECK(code_thrown_by([] { read_websocket(frame(0x82, "cut")); }) == Code::io);
  const auto refused = [](const std::string& frames) {
    CHECK(code_thrown_by([&] { read_websocket(frames); }) == Code::corrupted);
  };
  refused(frame(0xc2, "extension"));
  refused(frame(0x80, "continues nothing"));
  refused(frame(0x02, "a") + frame(0x82, "b"));
  refused(frame(0x09, "half a ping"));
  refused(frame(0x89, std::string(126, 'x')));
  refused(frame(0x83, "unknown"));
  refused(std::string("\x82\x85\0\0\0\0hello", 11));
  refused(std::string("\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", 10));
}

TEST_CASE("a large request goes out on a connection that was kept", "[hostile]") {
  const std::string large(16 << 20, 'x');
  std::atomic<size_t> arrived{0};
  const ScriptedServer server([&](const Received& request, Connection& to) {
    arrived = request.body.size();
    return to.write(answer(200, "{}"));
  });
  const link::Cancel cancel;
  link::HttpClient client(link::parse_origin(server.url(), false), nullptr, cancel);
  for (int i = 0; i < 3; ++i) {
    client.exchange({"GET", "/a"}, after(seconds(20)));
    client.exchange({"POST", "/b", {}, large}, after(seconds(60)));
    CHECK(arrived == large.size());
  }
}

TEST_CASE("TLS is verified, by the system's authorities and those of a file", "[hostile]") {
  const base::IssuedCertificate root =
      base::Issuer::self_signed({.name = "test", .authority = true, .path_length = 1});
  const std::string host = GENERATE("localhost", "other.example");
  const base::IssuedCertificate leaf =
      base::Issuer(root.certificate + root.key).issue({.name = host, .hosts = {host}});
  const ScriptedServer server(
      [](const Received&, Connection& to) { return to.write(answer(200, "[]")); }, &leaf);
  const std::string port = server.url().substr(server.url().rfind(':'));
  const std::string file = "/tmp/moorage-authority-" + base::random_hex(8);
  std::ofstream(file) << root.certificate;
  const auto find = [&](const std::string& more) {
    const std::string settings = R"({"api_url":"https://localhost)" + port + "\"" + more + "}";
    return link::make_driver("e2b", {settings, "secret-key"})->find(kLabels, after(seconds(30)));
  };
  const std::string trusting = ",\"ca_file\":\"" + file + "\"";
  const auto begun = Clock::now();
  if (host == "localhost") {
    CHECK(find(trusting).empty());
  } else {
    CHECK(error_of([&] { find(trusting); }).code() == Code::unsupported);
  }
  const Error error = error_of([&] { find(""); });
  CHECK(error.code() == Code::unsupported);
  CHECK(error.hint() == "if an authority of your own signs its certificate, name it in ca_file");
  CHECK(Clock::now() - begun < seconds(20));  // a retry would not help
  std::remove(file.c_str());
}

TEST_CASE("a key never goes out in the clear, except where the configuration says so",
          "[hostile]") {
  const auto make = [](const std::string& more) {
    return link::make_driver("e2b", {R"({"api_url":"http://10.1.2.3:80")" + more + "}", "key"});
  };
  CHECK(code_thrown_by([&] { make(""); }) == Code::invalid_argument);
  CHECK(make(R"(,"allow_plain_http":true)"));
  for (const char* url :
       {"", "ftp://a", "https://", "https://a b", "https://u:p@host", "https://a:0",
        "https://a:99999", "https://a/../b", "https://a/?x", "https://[::1"}) {
    CAPTURE(url);
    CHECK(code_thrown_by([&] { link::parse_origin(url, true); }) == Code::invalid_argument);
  }
  CHECK(link::parse_origin("https://[::1]:8443/api/", false).str() == "https://[::1]:8443/api");
}

}  // namespace
}  // namespace moorage::link_test
