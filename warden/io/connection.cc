#include "warden/io/connection.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/error.h"

namespace moorage::warden {
namespace {

namespace http = boost::beast::http;
using std::chrono::seconds;

constexpr auto kRequestDeadline = seconds(10);
constexpr auto kIdleDeadline = seconds(60);
constexpr auto kWriteDeadline = seconds(60);
constexpr uint8_t kEndOfStream = 2;
constexpr size_t kCongestedBytes = 256 << 10;
constexpr uint32_t kHangUpOnly = EPOLLHUP;  // not 0: that would remove it from epoll

}  // namespace

std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

struct Connection::Parser {
  http::request_parser<http::string_body> http;
  Parser() {
    http.header_limit(kMaxHeaderBytes);
    http.body_limit(kMaxBodyBytes);
    http.eager(true);
  }
};

std::optional<std::string> HttpRequest::header(const std::string& lower_case_name) const {
  auto found = headers.find(lower_case_name);
  if (found == headers.end()) return std::nullopt;
  return found->second;
}

Connection::Connection(Loop& loop, Fd socket, Handler handler, Closed closed)
    : loop_(loop),
      socket_(std::move(socket)),
      request_deadline_(loop),
      write_deadline_(loop),
      handler_(std::move(handler)),
      closed_(std::move(closed)),
      parser_(std::make_unique<Parser>()) {}

Connection::~Connection() = default;

void Connection::start() {
  watch_ = std::make_unique<Watch>(loop_, socket_.get(), EPOLLIN,
                                   [this](uint32_t events) { on_events(events); });
  request_deadline_.start(kRequestDeadline, [this] { close(); });
}

bool Connection::idle() const { return !answering_ && in_.empty() && out_.empty(); }

bool Connection::congested() const { return out_.size() - sent_ > kCongestedBytes; }

void Connection::close() {
  if (!socket_) return;
  auto self = shared_from_this();
  watch_.reset();
  request_deadline_.stop();
  write_deadline_.stop();
  socket_.reset();
  fds_.clear();
  out_.clear();
  sent_ = 0;
  if (auto relief = std::exchange(relief_, nullptr)) relief();
  closed_(this);
}

void Connection::on_events(uint32_t events) {
  auto self = shared_from_this();
  if (events & EPOLLOUT) flush();
  if (!socket_) return;
  if (events & EPOLLIN) {
    read_some();
  } else if (events & (EPOLLHUP | EPOLLERR)) {
    close();
  }
}

void Connection::read_some() {
  auto buffer = io_buffer();
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxFds)> control;
  iovec part{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t count = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return close();
  for (Fd& fd : base::take_fds(message)) {
    if (fds_.size() < kMaxFds) fds_.push_back(std::move(fd));  // the rest are closed
  }
  if (in_.empty() && !parser_->http.got_some()) {
    request_deadline_.start(kRequestDeadline, [this] { close(); });
  }
  in_.append(buffer.data(), static_cast<size_t>(count));
  parse();
}

void Connection::parse() {
  boost::beast::error_code error;
  size_t used = 0;
  while (used < in_.size() && !parser_->http.is_done()) {
    size_t step =
        parser_->http.put(boost::asio::const_buffer(in_.data() + used, in_.size() - used), error);
    used += step;
    if (error == http::error::need_more) {
      error = {};
      break;
    }
    if (error) break;
    if (step == 0) break;
  }
  in_.erase(0, used);
  if (error == http::error::body_limit) return refuse(413, "the body is too large\n");
  // The parser leaves only an incomplete line: of the header or a chunk.
  const bool endless_line = !parser_->http.is_done() && in_.size() > kMaxHeaderBytes;
  if (error == http::error::header_limit || (!error && endless_line)) {
    return refuse(431, "the header is too large\n");
  }
  if (error) return refuse(400, "not an HTTP request\n");
  if (parser_->http.is_done()) hand_over();
}

void Connection::hand_over() {
  request_deadline_.stop();
  answering_ = true;
  auto message = parser_->http.release();
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.target = std::string(message.target());
  for (const auto& field : message.base()) {
    request.headers[lower_case(field.name_string())] = std::string(field.value());
  }
  request.body = std::move(message.body());
  request.fds = std::exchange(fds_, {});
  close_after_ = !message.keep_alive();
  parser_ = std::make_unique<Parser>();
  update_watch();
  handler_(shared_from_this(), std::move(request));
}

void Connection::refuse(int status, std::string_view text) {
  answering_ = true;
  close_after_ = true;
  respond(status, "text/plain", text);
}

void Connection::respond(int status, std::string_view content_type, std::string_view body) {
  if (!socket_) return;
  std::string head = "HTTP/1.1 " + std::to_string(status) + " " +
                     std::string(http::obsolete_reason(static_cast<http::status>(status))) + "\r\n";
  if (status != 204) {
    head += "Content-Type: " + std::string(content_type) + "\r\n";
    head += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  }
  if (close_after_) head += "Connection: close\r\n";
  queue(head + "\r\n" + std::string(body));
  answer_done();
}

void Connection::begin_stream() {
  queue(
      "HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\n"
      "Transfer-Encoding: chunked\r\n" +
      std::string(close_after_ ? "Connection: close\r\n" : "") + "\r\n");
}

void Connection::send_envelope(uint8_t flags, std::string_view json) {
  if (!socket_) return;
  const auto size = static_cast<uint32_t>(json.size());
  std::array<char, 16> chunk_head;
  int head_size = snprintf(chunk_head.data(), chunk_head.size(), "%zx\r\n", json.size() + 5);
  const char envelope[5] = {static_cast<char>(flags), static_cast<char>(size >> 24),
                            static_cast<char>(size >> 16), static_cast<char>(size >> 8),
                            static_cast<char>(size)};
  out_.append(chunk_head.data(), static_cast<size_t>(head_size));
  out_.append(envelope, sizeof envelope);
  out_ += json;
  queue("\r\n");
}

void Connection::end_stream(std::string_view json) {
  send_envelope(kEndOfStream, json);
  if (!socket_) return;
  queue("0\r\n\r\n");
  answer_done();
}

void Connection::answer_done() {
  if (!socket_) return;
  answering_ = false;
  relief_ = nullptr;
  if (out_.empty() && close_after_) return close();
  if (close_after_) return update_watch();
  request_deadline_.start(kIdleDeadline, [this] { close(); });
  update_watch();
  if (in_.empty()) return;
  // A pipelined request: parsed in the next round, so that answers do not nest.
  request_deadline_.start(std::chrono::milliseconds(0), [this] {
    auto self = shared_from_this();
    request_deadline_.start(kRequestDeadline, [this] { close(); });
    parse();
  });
}

void Connection::queue(std::string_view bytes) {
  if (!socket_) return;
  out_ += bytes;
  flush();
}

void Connection::flush() {
  const bool was_congested = congested();
  while (sent_ < out_.size()) {
    ssize_t count = ::send(socket_.get(), out_.data() + sent_, out_.size() - sent_,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) return close();
    sent_ += static_cast<size_t>(count);
    write_deadline_.stop();
  }
  if (sent_ == out_.size()) {
    std::string().swap(out_);
    sent_ = 0;
    if (close_after_ && !answering_) return close();
  } else if (!write_deadline_.running()) {
    write_deadline_.start(kWriteDeadline, [this] { close(); });
  }
  if (sent_ > kCongestedBytes) {
    out_.erase(0, sent_);
    sent_ = 0;
  }
  update_watch();
  if (was_congested && !congested() && relief_) {
    auto relief = relief_;
    relief();
  }
}

void Connection::update_watch() {
  if (!watch_) return;
  const bool reading = !answering_ && !close_after_;
  watch_->set_events((reading ? uint32_t{EPOLLIN} : kHangUpOnly) |
                     (out_.empty() ? 0u : uint32_t{EPOLLOUT}));
}

}  // namespace moorage::warden
