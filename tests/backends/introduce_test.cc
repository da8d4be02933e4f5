// How wardens of this and other releases answer the protocol query. The answer from before the
// query existed is a recording.
#include <stdlib.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <thread>

#include "backends/envd_client.h"
#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"

using namespace moorage;
using namespace std::chrono_literals;

namespace {

// One connection: reads the request to its empty line, sends the answer, closes.
std::optional<backends::WardenInfo> ask_one_that_answers(const std::string& answer) {
  std::string directory = "/tmp/moorage-introduce-XXXXXX";
  REQUIRE(mkdtemp(directory.data()) != nullptr);
  struct Remove {
    const std::string& path;
    ~Remove() { base::remove_tree(path); }
  } remove{directory};
  const std::string path = directory + "/warden.sock";
  const base::Fd listener = base::listen_unix(path, 0600);
  std::thread warden([&] {
    base::Fd peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::string request;
    while (request.find("\r\n\r\n") == std::string::npos) {
      const std::string bytes = base::receive_with_fds(peer.get(), 4096).bytes;
      if (bytes.empty()) return;
      request += bytes;
    }
    base::write_all(peer.get(), answer);
  });
  struct Join {
    std::thread& thread;
    ~Join() { thread.join(); }
  } join{warden};
  return backends::EnvdClient(backends::Endpoint{path}).introduce(10s);
}

std::string http(const std::string& status, const std::string& body) {
  return "HTTP/1.1 " + status +
         "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

}  // namespace

TEST_CASE("a warden without the protocol query speaks protocol 1") {
  const auto answer = ask_one_that_answers(
      "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 62\r\n\r\n"
      "{\"code\":\"not_found\",\"message\":\"there is nothing at this path\"}");
  REQUIRE(answer);
  CHECK(answer->protocols.oldest == 1);
  CHECK(answer->protocols.newest == 1);
  CHECK(answer->release.empty());
}

TEST_CASE("a newer warden reports its protocols, and may add fields") {
  const auto answer = ask_one_that_answers(
      http("200 OK", R"({"oldest":3,"newest":7,"release":"9.1","more":{"of":"it"}})"));
  REQUIRE(answer);
  CHECK(answer->protocols.oldest == 3);
  CHECK(answer->protocols.newest == 7);
  CHECK(answer->release == "9.1");
}

TEST_CASE("an invalid answer is rejected") {
  for (const char* body : {"", "[]", R"({"release":"1"})", R"({"oldest":-1,"newest":"x"})"}) {
    CAPTURE(body);
    CHECK_THROWS_AS(ask_one_that_answers(http("200 OK", body)), base::Error);
  }
  CHECK_FALSE(ask_one_that_answers(http("503 Service Unavailable", "{}")));
  CHECK_FALSE(ask_one_that_answers("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf"));
}
