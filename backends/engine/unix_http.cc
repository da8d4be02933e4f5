#include "backends/engine/unix_http.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/error.h"
#include "base/os/fd.h"

namespace moorage::backends {
namespace {

namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;

constexpr size_t kMaxHeaderBytes = 16 << 10;

class Exchange {
 public:
  Exchange(const HttpPeer& peer, std::chrono::milliseconds deadline)
      : peer_(peer), end_(Clock::now() + deadline), socket_(connect()) {}

  void send(const HttpRequest& request);
  HttpAnswer receive();

 private:
  Fd connect() const;
  int left_ms() const;
  void wait_for(short events) const;

  const HttpPeer& peer_;
  Clock::time_point end_;
  Fd socket_;
};

int Exchange::left_ms() const {
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

Fd Exchange::connect() const {
  try {
    return base::connect_unix(peer_.unix_socket, std::max(1, left_ms()));
  } catch (const Error& error) {
    throw Error(Code::unavailable, peer_.noun + " cannot be reached: " + error.message());
  }
}

// Only called after the first byte was sent.
void Exchange::wait_for(short events) const {
  for (;;) {
    pollfd entry{socket_.get(), events, 0};
    int ready = ::poll(&entry, 1, left_ms());
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) base::throw_errno("wait for " + peer_.noun);
    if (left_ms() == 0) {
      throw Error(Code::unknown_outcome, peer_.noun + " did not answer in time");
    }
  }
}

void Exchange::send(const HttpRequest& request) {
  std::string text = request.method + " " + request.path + " HTTP/1.1\r\nHost: moorage\r\n";
  for (const auto& [name, value] : request.headers) text += name + ": " + value + "\r\n";
  text +=
      "Content-Length: " + std::to_string(request.body.size()) + "\r\nConnection: close\r\n\r\n";
  text += request.body;
  std::string_view rest = text;
  try {
    base::send_with_fds(socket_.get(), rest.substr(0, 1), request.fds);
  } catch (const Error& error) {  // not even the first byte was sent
    throw Error(Code::unavailable, peer_.noun + " cannot be reached: " + error.message());
  }
  rest.remove_prefix(1);
  while (!rest.empty()) {
    ssize_t count = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      rest.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      wait_for(POLLOUT);
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return;  // it may have answered before closing: receive() checks
    } else if (errno != EINTR) {
      base::throw_errno("send to " + peer_.noun);
    }
  }
}

HttpAnswer Exchange::receive() {
  http::response_parser<http::string_body> parser;
  parser.header_limit(kMaxHeaderBytes);
  parser.body_limit(peer_.max_answer_bytes);
  parser.eager(true);
  std::string held;
  std::array<char, 16 << 10> piece;
  while (!parser.is_done()) {
    wait_for(POLLIN);
    ssize_t count = ::recv(socket_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    boost::beast::error_code error;
    if (count <= 0) {
      throw Error(Code::unknown_outcome, peer_.noun + " closed the connection without an answer");
    }
    held.append(piece.data(), static_cast<size_t>(count));
    size_t used = parser.put(boost::asio::const_buffer(held.data(), held.size()), error);
    held.erase(0, used);
    // Compared by value: daemon/ compiles Beast separately, so an optimised build has two objects
    // for its error category.
    if (error && error.value() != static_cast<int>(http::error::need_more)) {
      throw Error(Code::corrupted, peer_.noun + " sent an invalid HTTP answer: " + error.message());
    }
    if (held.size() > kMaxHeaderBytes + piece.size()) {
      throw Error(Code::corrupted, peer_.noun + " sent a line that is too long");
    }
  }
  return {static_cast<int>(parser.get().result_int()), std::move(parser.get().body())};
}

}  // namespace

HttpAnswer exchange(const HttpPeer& peer, const HttpRequest& request,
                    std::chrono::milliseconds deadline) {
  Exchange one(peer, deadline);
  one.send(request);
  return one.receive();
}

}  // namespace moorage::backends
