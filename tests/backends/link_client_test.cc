// Requests to a keeper and its answers, with a server that answers once.
#include "backends/remote/link_client.h"

#include <stdlib.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "thrown_code.h"

using namespace moorage;
using namespace std::chrono_literals;

namespace {

struct Directory {
  std::string path = "/tmp/moorage-link-client-XXXXXX";
  Directory() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  ~Directory() { base::remove_tree(path); }
};

std::string receive_request(int peer) {
  std::string request;
  for (;;) {
    const size_t head = request.find("\r\n\r\n");
    const size_t length = request.find("Content-Length: ");
    if (head != std::string::npos && length < head &&
        request.size() >= head + 4 + std::stoul(request.substr(length + 16))) {
      return request;
    }
    const std::string bytes = base::receive_with_fds(peer, 4096).bytes;
    if (bytes.empty()) return request;
    request += bytes;
  }
}

// Calls with a client of a server that sends `answer` to one request; returns the request.
std::string served(const std::string& answer,
                   const std::function<void(backends::LinkClient&)>& call) {
  const Directory directory;
  const std::string path = directory.path + "/warden.sock";
  const base::Fd listener = base::listen_unix(path, 0600);
  std::string request;
  std::thread server([&] {
    const base::Fd peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    request = receive_request(peer.get());
    base::write_all(peer.get(), answer);
  });
  {
    struct Join {
      std::thread& thread;
      ~Join() { thread.join(); }
    } join{server};
    backends::LinkClient client(backends::Endpoint{path});
    call(client);
  }
  return request;
}

std::string http(const std::string& status, const std::string& body) {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

const std::string kDone = http("200 OK", "{}");

// What a server that refuses with this answer makes the client throw.
Error refusal(const std::string& answer) {
  std::optional<Error> thrown;
  served(answer, [&](backends::LinkClient& client) {
    try {
      client.sync(10s);
    } catch (const Error& error) {
      thrown = error;
    }
  });
  REQUIRE(thrown);
  return *thrown;
}

}  // namespace

TEST_CASE("each request to a keeper has its path and its body") {
  using Client = backends::LinkClient;
  struct Row {
    std::string first_line;
    std::string body;
    std::function<void(Client&)> call;
  };
  const std::vector<Row> rows{
      {"POST /moorage/connect ", "{}", [](Client& one) { one.connect(10s); }},
      {"POST /moorage/begin ", R"({"layers":[{"tree":"/a/tree","home":""}]})",
       [](Client& one) {
         one.begin({{"/a/tree", ""}}, 10s);
       }},
      {"POST /moorage/sync ", "{}", [](Client& one) { one.sync(10s); }},
      {"POST /moorage/changed ", R"({"paths":["/workspace/a","/home/user/\"b"]})",
       [](Client& one) {
         one.changed({"/workspace/a", "/home/user/\"b"}, 10s);
       }},
      {"POST /moorage/destroy ", "{}", [](Client& one) { one.destroy(10s); }},
      {"POST /moorage/shutdown ", R"({"grace_ms":1500,"keep":true})",
       [](Client& one) { one.shut_down({.grace = 1500ms, .keep = true}, 10s); }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.first_line);
    const std::string request = served(kDone, row.call);
    CHECK(request.starts_with(row.first_line));
    CHECK(request.substr(request.find("\r\n\r\n") + 4) == row.body);
  }
}

TEST_CASE("a stop says whether the machine is kept, with limits") {
  const auto ended_by = [](const std::string& body) {
    backends::LinkClient::Ended ended;
    served(http("200 OK", body),
           [&](backends::LinkClient& client) { ended = client.shut_down({.grace = 1ms}, 10s); });
    return ended;
  };
  CHECK(ended_by(R"({"kept":true,"why":""})").kept);
  const auto not_kept = ended_by(R"({"kept":false,"why":")" + std::string(3000, 'w') + R"("})");
  CHECK_FALSE(not_kept.kept);
  CHECK(not_kept.why.starts_with("www"));
  CHECK(not_kept.why.size() < 3000);
  for (const char* other : {"{}", "[]", "kept", R"({"kept":"yes"})"})
    CHECK_FALSE(ended_by(other).kept);
}

TEST_CASE("more paths than a keeper takes are refused before they are sent") {
  const std::vector<std::string> paths(backends::kMaxChangedPaths + 1, "/workspace/a");
  backends::LinkClient client(backends::Endpoint{"/nonexistent/warden.sock"});
  CHECK(code_thrown_by([&] { client.changed(paths, 10s); }) == Code::invalid_argument);
}

TEST_CASE("the status of a link is what the keeper says, with limits") {
  base::LinkStatus sent;
  sent.connected = true;
  sent.overlay = "user";
  sent.net_namespace = true;
  sent.behind_ms = 1234;
  sent.last_pack = 7;
  sent.reason = std::string(3000, 'r') + "\x1b[2J";
  base::LinkStatus got;
  const std::string request =
      served(http("200 OK", base::link_status_text(sent)),
             [&](backends::LinkClient& client) { got = client.status(10s); });
  CHECK(request.starts_with("GET /moorage/remote "));
  CHECK(got.connected);
  CHECK(got.overlay == "user");
  CHECK_FALSE(got.pid_namespace);
  CHECK(got.net_namespace);
  CHECK(got.behind_ms == 1234);
  CHECK(got.last_pack == 7);
  CHECK(got.reason == std::string(2000, 'r'));

  for (const std::string& body : {std::string("[]"), std::string("{}"), std::string("{"),
                                  std::string(100'000, '['), std::string(100'000, ' ')}) {
    CAPTURE(body.substr(0, 20));
    served(http("200 OK", body), [](backends::LinkClient& client) {
      CHECK(code_thrown_by([&] { client.status(10s); }) == Code::corrupted);
    });
  }
}

TEST_CASE("an error of a keeper arrives with code and hint, bounded and escaped") {
  const Error told = refusal(
      http("503 Error",
           R"({"code":"resource_exhausted","message":"no room \u001b[2J","hint":"moorage gc"})"));
  CHECK(told.code() == Code::resource_exhausted);
  CHECK(told.message() == "no room \\x1b[2J");
  CHECK(told.hint() == "moorage gc");

  const Error large =
      refusal(http("500 Error", R"({"code":"io","message":")" + std::string(9000, 'm') + "\"}"));
  CHECK(large.code() == Code::io);
  CHECK(large.message() == std::string(2000, 'm'));

  CHECK(refusal(http("500 Error", R"({"code":7,"message":[]})")).code() == Code::internal);
  CHECK(refusal(http("500 Error", "<html>")).code() == Code::corrupted);
  CHECK(refusal(http("500 Error", std::string(100'000, 'x'))).code() == Code::corrupted);
}

TEST_CASE("a keeper that does not answer is unavailable, whether or not it got the request") {
  CHECK(refusal("").code() == Code::unavailable);
  CHECK(refusal("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf").code() == Code::unavailable);
  backends::LinkClient nobody(backends::Endpoint{"/nonexistent/warden.sock"});
  CHECK(code_thrown_by([&] { nobody.sync(10s); }) == Code::unavailable);

  const Directory directory;
  const std::string path = directory.path + "/warden.sock";
  const base::Fd listener = base::listen_unix(path, 0600);  // takes the request, never reads it
  backends::LinkClient client(backends::Endpoint{path});
  CHECK(code_thrown_by([&] { client.sync(50ms); }) == Code::unavailable);
}
