#include "raw_http.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

#include "patience.h"

namespace moorage::test {
namespace {

using Clock = std::chrono::steady_clock;

std::string post(std::string_view method, std::string_view type, std::string_view body,
                 std::string_view extra_headers) {
  return "POST /process.Process/" + std::string(method) +
         " HTTP/1.1\r\nHost: x\r\nContent-Type: " + std::string(type) + "\r\n" +
         std::string(extra_headers) + "Content-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + std::string(body);
}

}  // namespace

RawHttp::RawHttp(const std::string& socket_path) : socket_(base::connect_unix(socket_path, 5000)) {}

void RawHttp::send(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

bool RawHttp::read_more(int timeout_ms) {
  if (closed_ || !base::wait_readable(socket_.get(), timeout_ms)) return false;
  std::array<char, 65536> piece;
  ssize_t count = ::recv(socket_.get(), piece.data(), piece.size(), 0);
  if (count <= 0) {
    closed_ = true;
    return false;
  }
  received_.append(piece.data(), static_cast<size_t>(count));
  return true;
}

bool RawHttp::wait_for(std::string_view text, int timeout_ms) {
  const auto end = Clock::now() + tests::patient(std::chrono::milliseconds(timeout_ms));
  size_t from = 0;  // do not search again: streams may be large
  while (received_.find(text, from) == std::string::npos) {
    from = received_.size() - std::min(received_.size(), text.size());
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0 || !read_more(static_cast<int>(left))) return false;
  }
  return true;
}

bool RawHttp::wait_for_close(int timeout_ms) {
  while (read_more(timeout_ms * tests::patience())) {
  }
  return closed_;
}

std::string unary(std::string_view method, std::string_view json, std::string_view extra_headers) {
  return post(method, "application/json", json, extra_headers);
}

std::string stream(std::string_view method, std::string_view json, std::string_view extra_headers) {
  const auto size = static_cast<uint32_t>(json.size());
  std::string body{'\0', static_cast<char>(size >> 24), static_cast<char>(size >> 16),
                   static_cast<char>(size >> 8), static_cast<char>(size)};
  body += json;
  return post(method, "application/connect+json", body, extra_headers);
}

}  // namespace moorage::test
