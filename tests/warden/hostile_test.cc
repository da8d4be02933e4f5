// Malicious requests: process 1 refuses them and keeps running.
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <thread>

#include "base/error.h"
#include "raw_http.h"
#include "warden_process.h"

using namespace moorage;
using namespace moorage::test;

namespace {

std::string deep(size_t depth) {
  return "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
}

}  // namespace

TEST_CASE("garbage is refused and does no harm") {
  WardenProcess warden;
  std::mt19937 random(7);
  const std::string good = stream("Start", R"({"process":{"cmd":"true","cwd":"/"},"stdin":false})");
  for (int round = 0; round < 500; ++round) {
    std::string bytes = good;
    for (int i = 0; i < 1 + round % 20; ++i)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (round % 3 == 0) bytes.resize(random() % bytes.size());
    if (round % 7 == 0) {
      for (char& c : bytes) c = static_cast<char>(random());
    }
    RawHttp http(warden.socket_path());
    http.send(bytes);
    if (round % 5 == 0) http.wait_for("HTTP/1.1", 20);
  }
  CHECK(warden.client().healthy(2s));
}

TEST_CASE("invalid JSON affects only its own request") {
  WardenProcess warden;
  for (std::string json :
       {std::string("{"), std::string("[]"), std::string("nonsense"), deep(40), deep(100'000),
        std::string(R"({"process":{"tag":7}})"), std::string(R"({"process":[]})"),
        std::string(R"({"process":{"pid":-1}})"), std::string("{\"a\":\"\\ud800\"}"),
        std::string(R"({"process":{"pid":1e99}})"), std::string("\xff\xfe")}) {
    for (std::string method :
         {"List", "SendInput", "CloseStdin", "SendSignal", "Update", "Start", "Connect"}) {
      RawHttp http(warden.socket_path());
      http.send(method == "Start" || method == "Connect" ? stream(method, json)
                                                         : unary(method, json));
      REQUIRE(http.wait_for("HTTP/1.1 ", 2000));
    }
  }
  CHECK(warden.client().healthy(1s));
}

TEST_CASE("envelopes with a wrong length are refused") {
  WardenProcess warden;
  std::string start = stream("Start", R"({"process":{"cmd":"true","cwd":"/"}})");
  for (std::string envelope :
       {std::string("\0\xff\xff\xff\xff{}", 7), std::string("\0\0\0\0\0{}", 7),
        std::string("\1\0\0\0\2{}", 7), std::string("\0\0", 2), std::string()}) {
    RawHttp http(warden.socket_path());
    http.send(
        "POST /process.Process/Start HTTP/1.1\r\nContent-Type: application/connect+json\r\n"
        "Content-Length: " +
        std::to_string(envelope.size()) + "\r\n\r\n" + envelope);
    CHECK(http.wait_for("\"code\":\"invalid_argument\"", 2000));
  }
}

TEST_CASE("headers over 16 KiB and bodies over the limit are refused") {
  WardenProcess warden;
  RawHttp header(warden.socket_path());
  header.send("GET /health HTTP/1.1\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n");
  CHECK(header.wait_for("HTTP/1.1 431", 2000));
  CHECK(header.wait_for_close(2000));
  RawHttp line(warden.socket_path());
  line.send("GET /" + std::string(100'000, 'x'));
  CHECK(line.wait_for("HTTP/1.1 4", 2000));
  RawHttp announced(warden.socket_path());
  announced.send("POST /process.Process/List HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n");
  CHECK(announced.wait_for("HTTP/1.1 413", 2000));
  RawHttp chunked(warden.socket_path());
  chunked.send("POST /process.Process/List HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  std::string chunk = "10000\r\n" + std::string(65536, ' ') + "\r\n";
  for (int i = 0; i < 240; ++i) chunked.send(chunk);
  CHECK(chunked.wait_for("HTTP/1.1 413", 2000));
  CHECK(warden.client().healthy(1s));
}

TEST_CASE("chunked requests are accepted") {
  WardenProcess warden;
  RawHttp http(warden.socket_path());
  http.send(
      "POST /process.Process/List HTTP/1.1\r\nTransfer-Encoding: "
      "chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n");
  CHECK(http.wait_for("{\"processes\":[]}", 2000));
}

TEST_CASE("incomplete and slow requests are closed after ten seconds, others continue") {
  WardenProcess warden;
  std::vector<std::unique_ptr<RawHttp>> slow;
  for (int i = 0; i < 40; ++i) {
    slow.push_back(std::make_unique<RawHttp>(warden.socket_path()));
    if (i % 2)
      slow.back()->send("POST /process.Process/List HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
  }
  auto begin = std::chrono::steady_clock::now();
  CHECK(warden.client().healthy(1s));
  for (auto& http : slow) REQUIRE(http->wait_for_close(15'000));
  auto took = std::chrono::steady_clock::now() - begin;
  CHECK(took > 8s);
  CHECK(took < patient(13s));
}

TEST_CASE("too many connections do not lock the daemon out permanently") {
  WardenProcess warden;
  std::vector<std::unique_ptr<RawHttp>> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(std::make_unique<RawHttp>(warden.socket_path()));
    idle.back()->send("GET /health HTTP/1.1\r\n\r\n");
    REQUIRE(idle.back()->wait_for("HTTP/1.1 204", 2000));
  }
  CHECK(warden.client().healthy(1s));
  CHECK(warden.open_descriptors() < 90);
}

TEST_CASE("when all connections are busy, another one gets 503") {
  WardenProcess warden;
  const std::string sleeper =
      stream("Start", R"({"process":{"cmd":"/bin/sleep","args":["100"],"cwd":"/"},"stdin":false})");
  std::vector<std::unique_ptr<RawHttp>> busy;
  for (int i = 0; i < 64; ++i) {
    busy.push_back(std::make_unique<RawHttp>(warden.socket_path()));
    busy.back()->send(sleeper);
    REQUIRE(busy.back()->wait_for("\"start\"", 2000));
  }
  auto code_of = [&] {
    try {
      warden.client().list();
    } catch (const base::Error& error) {
      return error.code();
    }
    return base::Code::internal;
  };
  CHECK(code_of() == base::Code::unavailable);
  busy.pop_back();
  CHECK(eventually([&] { return warden.client().healthy(1s); }, 2s));
}

TEST_CASE("an endless chunk line is refused") {
  WardenProcess warden;
  RawHttp http(warden.socket_path());
  http.send("POST /process.Process/List HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;");
  http.send(std::string(200'000, 'x'));
  CHECK(http.wait_for("HTTP/1.1 4", 2000));
}

TEST_CASE("unrequested descriptors are closed") {
  WardenProcess warden;
  const size_t before = warden.open_descriptors();
  for (int round = 0; round < 20; ++round) {
    base::Fd socket = base::connect_unix(warden.socket_path(), 1000);
    std::vector<base::Fd> pipes;
    std::vector<int> numbers;
    for (int i = 0; i < 50; ++i) {
      pipes.push_back(base::make_pipe().read_end);
      numbers.push_back(pipes.back().get());
    }
    base::send_with_fds(socket.get(), "GET /health HTTP/1.1\r\nHost: x\r\n\r\n", numbers);
    REQUIRE(base::wait_readable(socket.get(), 2000));
  }
  CHECK(eventually([&] { return warden.open_descriptors() <= before; }, 3s));
}

TEST_CASE("a start without its descriptors is refused") {
  WardenProcess warden;
  RawHttp http(warden.socket_path());
  http.send(stream("Start", R"({"process":{"cmd":"true","cwd":"/"}})",
                   "Moorage-Journal: 1\r\nMoorage-Kill-Fd: 1\r\n"));
  CHECK(http.wait_for("descriptors are missing", 2000));
}

TEST_CASE(
    "an answer that is not HTTP is corrupted, no answer is unknown_outcome, no peer is "
    "unavailable") {
  WardenProcess warden;  // for its directory
  const std::string path = warden.directory() + "/liar.sock";
  base::Fd listener = base::listen_unix(path, 0600);
  auto code_of = [&](std::string_view answer, bool closes) {
    std::thread liar([&] {
      base::Fd socket(::accept(listener.get(), nullptr, nullptr));
      std::string request;
      while (!request.ends_with("}")) request += base::receive_with_fds(socket.get(), 10'000).bytes;
      ::send(socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      if (!closes) std::this_thread::sleep_for(300ms);
    });
    base::Code code = base::Code::internal;
    try {
      backends::EnvdClient({path}).send_input("x", 0, "abc", 200ms);
    } catch (const base::Error& error) {
      code = error.code();
    }
    liar.join();
    return code;
  };
  CHECK(code_of("220 smtp ready\r\n\r\n", true) == base::Code::corrupted);
  CHECK(code_of("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", true) == base::Code::corrupted);
  CHECK(code_of("HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n", true) ==
        base::Code::corrupted);
  CHECK(code_of("", true) == base::Code::unknown_outcome);
  CHECK(code_of("", false) == base::Code::unknown_outcome);
  listener.reset();
  CHECK_THROWS_AS(backends::EnvdClient({path}).list(), base::Error);
}
