#include "scripted_server.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/os/files.h"
#include "program.h"

namespace moorage::test {
namespace {

bool send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

bool Call::fill() {
  char piece[65536];
  const ssize_t got = ::recv(socket_, piece, sizeof piece, 0);
  if (got <= 0) return false;
  buffer_.append(piece, static_cast<size_t>(got));
  return true;
}

std::string Call::take_line() {
  size_t end;
  while ((end = buffer_.find("\r\n")) == std::string::npos) {
    if (!fill()) return "";
  }
  const std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return line;
}

std::string Call::take(size_t size) {
  while (buffer_.size() < size && fill()) continue;
  const std::string bytes = buffer_.substr(0, size);
  buffer_.erase(0, bytes.size());
  return bytes;
}

bool Call::read_head() {
  const std::string first = take_line();
  if (first.empty()) return false;
  method = first.substr(0, first.find(' '));
  target = first.substr(method.size() + 1, first.rfind(' ') - method.size() - 1);
  path = target.substr(0, target.find('?'));
  headers.clear();
  body_.clear();
  body_read_ = false;
  for (std::string line; !(line = take_line()).empty();) {
    const size_t colon = line.find(": ");
    headers[lower(line.substr(0, colon))] = line.substr(colon + 2);
  }
  return true;
}

bool Call::has_body() const {
  const auto length = headers.find("content-length");
  return headers.contains("transfer-encoding") ||
         (length != headers.end() && length->second != "0");
}

const std::string& Call::body() {
  if (body_read_) return body_;
  body_read_ = true;
  if (!headers.contains("transfer-encoding")) {
    if (has_body()) body_ = take(std::stoull(headers["content-length"]));
    return body_;
  }
  for (;;) {
    const std::string line = take_line();
    const size_t size = line.empty() ? 0 : std::stoull(line, nullptr, 16);
    body_ += take(size);
    take_line();
    if (size == 0) return body_;
  }
}

void Call::reply(int status, std::string_view body, std::string_view more) {
  order_checks();
  send_all(socket_, "HTTP/1.1 " + std::to_string(status) +
                        " X\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
                        std::string(more) + "\r\n" + std::string(body));
}

void Call::begin(int status, std::string_view more) {
  send_all(socket_, "HTTP/1.1 " + std::to_string(status) + " X\r\nTransfer-Encoding: chunked\r\n" +
                        std::string(more) + "\r\n");
}

bool Call::chunk(std::string_view bytes) {
  char size[32];
  std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  return send_all(socket_, std::string(size) + std::string(bytes) + "\r\n");
}

void Call::end() { send_all(socket_, "0\r\n\r\n"); }

void Call::drop() {
  dropped_ = true;
  ::shutdown(socket_, SHUT_RDWR);
}

bool Call::client_waits() const {
  pollfd polled{socket_, POLLIN, 0};
  return ::poll(&polled, 1, 0) == 0;
}

void Call::wait_until_client_leaves() const {
  pollfd polled{socket_, POLLRDHUP, 0};
  ::poll(&polled, 1, 20'000);
}

std::string Call::query(const std::string& name) const {
  const std::string all = "&" + target.substr(std::min(target.size(), path.size() + 1)) + "&";
  const size_t at = all.find("&" + name + "=");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 2;
  return all.substr(begin, all.find('&', begin) - begin);
}

ScriptedServer::ScriptedServer(Handler handler) : handler_(std::move(handler)) {
  const char* base = ::getenv("TMPDIR");
  directory_ = std::string(base != nullptr ? base : "/tmp") + "/moorage-cli-test-XXXXXX";
  if (::mkdtemp(directory_.data()) == nullptr) base::throw_errno("mkdtemp");
  socket_path_ = directory_ + "/sock";
  start();
}

ScriptedServer::~ScriptedServer() {
  stop();
  base::remove_tree(directory_);
}

void ScriptedServer::start() {
  stopping_ = false;
  listener_ = base::listen_unix(socket_path_, 0600);
  acceptor_ = std::thread([this] { accept_loop(); });
}

void ScriptedServer::stop() {
  if (!listener_) return;
  stopping_ = true;
  ::unlink(socket_path_.c_str());
  ::shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  listener_.reset();
  std::list<std::thread> connections;
  {
    const std::lock_guard lock(mutex_);
    for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
    connections.swap(connections_);
  }
  for (std::thread& connection : connections) connection.join();
}

void ScriptedServer::accept_loop() {
  while (!stopping_) {
    const int socket = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) continue;
    const std::lock_guard lock(mutex_);
    sockets_.push_back(socket);
    connections_.emplace_back([this, socket] { serve(socket); });
  }
}

void ScriptedServer::serve(int socket) {
  Call call(socket);
  while (!stopping_ && call.read_head()) {
    {
      const std::lock_guard lock(mutex_);
      seen_.push_back({call.method, call.target, call.headers});
      ++active_;
    }
    handler_(call);
    {
      const std::lock_guard lock(mutex_);
      --active_;
      idle_.notify_all();
    }
    if (!call.keep_alive()) break;
  }
  const std::lock_guard lock(mutex_);
  sockets_.erase(std::find(sockets_.begin(), sockets_.end(), socket));
  ::close(socket);
}

void ScriptedServer::settle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return active_ == 0; });
}

std::vector<Seen> ScriptedServer::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

size_t ScriptedServer::count(const std::string& line) const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(seen_.begin(), seen_.end(), [&](const Seen& seen) {
    return seen.method + " " + seen.target.substr(0, seen.target.find('?')) == line;
  }));
}

std::string json_header() { return "Content-Type: application/json\r\n"; }

}  // namespace moorage::test
