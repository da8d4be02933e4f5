#include "served.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "base/os/files.h"

namespace moorage::daemon {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  const char* base = std::getenv("TMPDIR");
  path_ = std::string(base ? base : "/tmp") + "/moorage-daemon-XXXXXX";
  if (!mkdtemp(path_.data())) throw std::runtime_error("mkdtemp");
}

TemporaryDirectory::~TemporaryDirectory() { base::remove_tree(path_); }

std::string Answer::header(const std::string& name) const {
  const std::string folded = lower(head);
  const size_t at = folded.find("\r\n" + name + ": ");
  if (at == std::string::npos) return {};
  const size_t begin = at + 2 + name.size() + 2;
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

Wire::Wire(const std::string& socket)
    : fd_(base::connect_unix(socket, 10'000 * tests::patience())) {}

void Wire::send(std::string_view bytes) { base::write_all(fd_.get(), bytes); }

bool Wire::try_send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

std::string Wire::read_some(int timeout_ms) {
  if (!base::wait_readable(fd_.get(), timeout_ms * tests::patience()))
    throw std::runtime_error("no data arrived in time");
  std::string bytes(64 << 10, '\0');
  const ssize_t got = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return bytes;
}

bool Wire::closed_within(int timeout_ms) {
  const auto deadline =
      std::chrono::steady_clock::now() + tests::patient(std::chrono::milliseconds(timeout_ms));
  while (std::chrono::steady_clock::now() < deadline) {
    if (base::wait_readable(fd_.get(), 10) && read_some().empty()) return true;
  }
  return false;
}

bool Wire::fill() {
  const std::string more = read_some();
  buffer_ += more;
  return !more.empty();
}

std::string Wire::take(size_t bytes, bool& whole) {
  while (buffer_.size() < bytes && fill()) {
  }
  whole = buffer_.size() >= bytes;
  const std::string taken = buffer_.substr(0, bytes);
  buffer_.erase(0, bytes);
  return taken;
}

std::string Wire::take_line(bool& whole) {
  while (buffer_.find("\r\n") == std::string::npos && fill()) {
  }
  const size_t end = buffer_.find("\r\n");
  whole = end != std::string::npos;
  if (!whole) return {};
  const std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return line;
}

Answer Wire::read_answer() {
  Answer answer;
  bool whole = true;
  for (std::string line = take_line(whole); whole && !line.empty(); line = take_line(whole)) {
    answer.head += line + "\r\n";
  }
  if (!whole) return answer;
  answer.status = std::stoi(answer.head.substr(answer.head.find(' ') + 1, 3));
  if (answer.status == 204 || answer.status == 100) {
    answer.whole = true;
  } else if (answer.header("transfer-encoding") == "chunked") {
    for (;;) {
      const std::string size = take_line(whole);
      if (!whole) break;
      const size_t bytes = std::stoul(size, nullptr, 16);
      const std::string chunk = take(bytes + 2, whole);
      if (!whole) break;
      answer.body += chunk.substr(0, bytes);
      answer.whole = bytes == 0;
      if (answer.whole) break;
    }
  } else {
    answer.body = take(std::stoul(answer.header("content-length")), answer.whole);
  }
  return answer;
}

Served::Served(Limits limits) : socket_(directory_.path() + "/api.sock"), limits_(limits) {
  state_db::StoreOptions options;
  options.directory = directory_.path();
  store_ = std::make_unique<state_db::Store>(options);
  answers_ = std::make_unique<KeyedAnswers>(*store_);
  dispatcher_ = std::make_unique<Dispatcher>(worker_pools_, *answers_);
}

void Served::start() {
  server_ = std::make_unique<Server>(Server::Parts{router_, *dispatcher_, worker_pools_, limits_});
  server_->listen(base::listen_unix(socket_, 0600));
  thread_ = std::thread([this] { drained_ = server_->run(false); });
}

bool Served::stop() {
  if (thread_.joinable()) {
    server_->stop();
    thread_.join();
  }
  return drained_;
}

Served::~Served() { stop(); }

Answer Served::ask(const std::string& head_and_body) {
  Wire wire = connect();
  wire.try_send(head_and_body);
  return wire.read_answer();
}

Answer Served::post(const std::string& path, const std::string& body, const std::string& headers) {
  return ask("POST " + path + " HTTP/1.1\r\nHost: x\r\n" + headers +
             "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
}

}  // namespace moorage::daemon
