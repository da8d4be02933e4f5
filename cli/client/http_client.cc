#include "cli/client/http_client.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <cstdlib>

#include "base/error.h"
#include "base/os/fd.h"
#include "cli/client/accounts.h"

namespace moorage::cli {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {

constexpr size_t kBufferBytes = 256 << 10;

// Thrown through Beast when the daemon answers before it has the whole body: it wants no more.
struct EarlyAnswer {};

[[noreturn]] void throw_lost(const std::string& how) {
  throw Error(Code::unknown_outcome, "lost the connection to the daemon: " + how,
              "the outcome is unknown; check with: moorage ls, moorage ps");
}

// The socket as Beast's SyncStream, with a limit on silence and a way to wake it.
class UnixStream {
 public:
  UnixStream(Fd socket, int cancel_fd) : socket_(std::move(socket)), cancel_fd_(cancel_fd) {}
  void set_silence_timeout(int ms) { silence_timeout_ms_ = ms; }
  // Between two exchanges: the daemon closes a connection that was idle for a while.
  bool closed_by_peer() const {
    char byte = 0;
    return ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  }

  template <typename Buffers>
  size_t read_some(const Buffers& buffers, beast::error_code& failure) {
    for (const asio::mutable_buffer buffer : beast::buffers_range_ref(buffers)) {
      if (buffer.size() == 0) continue;
      return read_into(buffer.data(), buffer.size(), failure);
    }
    return 0;
  }
  template <typename Buffers>
  size_t write_some(const Buffers& buffers, beast::error_code& failure) {
    std::array<iovec, 16> pieces{};
    size_t count = 0;
    for (const asio::const_buffer buffer : beast::buffers_range_ref(buffers)) {
      if (count == pieces.size()) break;
      if (buffer.size() > 0) pieces[count++] = {const_cast<void*>(buffer.data()), buffer.size()};
    }
    return write_from(pieces.data(), count, failure);
  }
  // Beast's concept check requires the throwing forms; nothing calls them.
  template <typename Buffers>
  size_t read_some(const Buffers& buffers) {
    beast::error_code failure;
    return read_some(buffers, failure);
  }
  template <typename Buffers>
  size_t write_some(const Buffers& buffers) {
    beast::error_code failure;
    return write_some(buffers, failure);
  }

 private:
  size_t read_into(void* data, size_t size, beast::error_code& failure) {
    for (;;) {
      const ssize_t got = ::recv(socket_.get(), data, size, MSG_DONTWAIT);
      if (got > 0) return static_cast<size_t>(got);
      if (got == 0) {
        failure = http::error::end_of_stream;
        return 0;
      }
      if (errno == EINTR) continue;
      if (errno != EAGAIN) throw_lost("reading its answer failed");
      wait(POLLIN);
    }
  }

  size_t write_from(iovec* pieces, size_t count, beast::error_code& failure) {
    failure = {};
    if (count == 0) return 0;
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = count;
    for (;;) {
      const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent >= 0) return static_cast<size_t>(sent);
      if (errno == EINTR) continue;
      // A daemon that refused the body may have closed the connection with its answer on the way.
      if (errno == EPIPE || errno == ECONNRESET) throw EarlyAnswer{};
      if (errno != EAGAIN) throw_lost("sending the request failed");
      if ((wait(POLLOUT | POLLIN) & POLLOUT) == 0) throw EarlyAnswer{};
    }
  }

  short wait(short events) {
    pollfd polled[2] = {{socket_.get(), events, 0}, {cancel_fd_, POLLIN, 0}};
    int ready = 0;
    do {
      ready = ::poll(polled, 2, silence_timeout_ms_);
    } while (ready < 0 && errno == EINTR);
    if (polled[1].revents != 0) throw_lost("cancelled");
    if (ready == 0)
      throw_lost("no answer for " + std::to_string(silence_timeout_ms_ / 1000) + " s");
    return polled[0].revents;
  }

  Fd socket_;
  int cancel_fd_;
  int silence_timeout_ms_ = -1;
};

template <typename Body>
http::request<Body> make_head(const HttpRequest& request) {
  http::request<Body> head;
  head.method_string(request.method);
  head.target(request.target);
  head.version(11);
  head.set(http::field::host, "moorage");
  head.set(http::field::user_agent, "moorage/" MOORAGE_VERSION);
  for (const auto& [name, value] : request.headers) head.set(name, value);
  return head;
}

void send_whole(UnixStream& stream, const HttpRequest& request) {
  auto message = make_head<http::string_body>(request);
  message.body() = request.body;
  if (!request.body.empty() || request.method != "GET") message.prepare_payload();
  beast::error_code failure;
  http::write(stream, message, failure);
  if (failure) throw_lost(failure.message());
}

void send_streamed(UnixStream& stream, const HttpRequest& request) {
  auto message = make_head<http::buffer_body>(request);
  message.chunked(true);
  message.body().data = nullptr;
  message.body().more = true;
  http::request_serializer<http::buffer_body> serializer(message);
  beast::error_code failure;
  http::write_header(stream, serializer, failure);
  std::vector<char> buffer(kBufferBytes);
  while (!failure && message.body().more) {
    const size_t size = request.source(buffer.data(), buffer.size());
    message.body() = {size == 0 ? nullptr : buffer.data(), size, size != 0};
    http::write(stream, serializer, failure);
    if (failure == http::error::need_buffer) failure = {};
  }
  if (failure) throw_lost(failure.message());
}

std::string who_may(const std::string& socket_path) {
  struct stat found {};
  const bool known = ::stat(socket_path.c_str(), &found) == 0;
  if (known && (found.st_mode & S_IWGRP) == 0) return "only its owner may use it: sudo moorage ...";
  const std::string group = known ? group_name(found.st_gid) : "moorage";
  return "join the group " + group + ": sudo usermod -aG " + group +
         " $USER, then open a new shell";
}

// Explains to a person why the socket cannot be reached: unavailable or permission_denied. `cause`
// comes from base::connect_unix.
Error connect_trouble(const std::string& socket_path, const Error& cause) {
  if (cause.code() == Code::permission_denied) {
    return Error(Code::permission_denied,
                 "no permission to connect to the daemon at " + socket_path, who_may(socket_path));
  }
  const std::string text = "cannot reach the daemon at " + socket_path + ": ";
  const char* start = ::access("/run/systemd/system", F_OK) == 0
                          ? "start it with: sudo systemctl start moorage  or  sudo ./quickstart"
                          : "start it with: sudo sh -c 'setsid mooraged &'  or  sudo ./quickstart";
  struct stat found {};
  if (::stat(socket_path.c_str(), &found) != 0)
    return Error(Code::unavailable, text + "the socket does not exist", start);
  if (!S_ISSOCK(found.st_mode)) {
    return Error(Code::unavailable, text + "not a socket",
                 "--socket and MOORAGE_SOCKET name the daemon's socket; without them it is "
                 "/run/moorage/mooraged.sock");
  }
  if (cause.message().ends_with("File name too long")) {
    return Error(Code::unavailable, text + "the name is too long",
                 "a socket path has at most 107 bytes: set a shorter one in api.socket");
  }
  return Error(Code::unavailable, text + cause.message(), start);
}

std::string lease_of_environment() {
  const char* lease = std::getenv("MOORAGE_LEASE");
  return lease == nullptr ? "" : lease;
}

}  // namespace

struct HttpConnection::Link {
  Link(Fd socket, int cancel_fd) : stream(std::move(socket), cancel_fd) {}

  // Sends. True: the daemon answered before it had the whole body.
  bool send(const HttpRequest& given, const std::string& lease) {
    HttpRequest leased;
    const bool bears = !lease.empty();
    if (bears) {
      leased = given;
      leased.headers.emplace_back("Moorage-Lease", lease);
    }
    const HttpRequest& request = bears ? leased : given;
    try {
      request.source ? send_streamed(stream, request) : send_whole(stream, request);
      return false;
    } catch (const EarlyAnswer&) {
      return true;
    }
  }

  // Reads the answer. True: the connection can be used again.
  bool receive(HttpResponse& response, const ExchangeOptions& options) {
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    beast::error_code failure;
    do {
      if (failure) throw_lost(failure.message());
      http::read_header(stream, input, parser, failure);
      if (failure)
        throw_lost(failure == http::error::end_of_stream ? "it closed" : failure.message());
      response.status = static_cast<int>(parser.get().result_int());
    } while (response.status < 200 && response.status != 101);
    for (const auto& field : parser.get()) {
      response.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    }
    if (options.on_header) options.on_header(response);
    receive_body(parser, response, options);
    return parser.get().keep_alive();
  }

  void receive_body(http::response_parser<http::buffer_body>& parser, HttpResponse& response,
                    const ExchangeOptions& options) {
    const auto buffer = std::make_unique_for_overwrite<char[]>(kBufferBytes);
    while (!parser.is_done()) {
      parser.get().body() = {buffer.get(), kBufferBytes, true};
      beast::error_code failure;
      http::read_some(stream, input, parser, failure);
      if (failure && failure != http::error::need_buffer) throw_lost("the answer was cut short");
      const std::string_view piece(buffer.get(), kBufferBytes - parser.get().body().size);
      if (piece.empty()) continue;
      if (options.sink && response.ok()) {
        options.sink(piece);
        continue;
      }
      response.body.append(piece);
      if (response.body.size() > options.max_body_bytes) {
        throw Error(Code::resource_exhausted, "the daemon's answer is too large");
      }
    }
  }

  UnixStream stream;
  beast::flat_buffer input{kBufferBytes * 2};
};

HttpConnection::HttpConnection(std::string socket_path)
    : socket_path_(std::move(socket_path)),
      lease_(lease_of_environment()),
      cancel_fd_(base::check(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "create an eventfd")) {}

HttpConnection::~HttpConnection() = default;

void HttpConnection::cancel() {
  cancelled_ = true;
  ::eventfd_write(cancel_fd_.get(), 1);
}

HttpConnection::Link& HttpConnection::connect() {
  if (link_ && !link_->stream.closed_by_peer()) return *link_;
  try {
    link_ = std::make_unique<Link>(base::connect_unix(socket_path_, 5000), cancel_fd_.get());
  } catch (const Error& error) {
    throw connect_trouble(socket_path_, error);
  }
  return *link_;
}

HttpResponse HttpConnection::exchange(const HttpRequest& request, const ExchangeOptions& options) {
  if (cancelled_) throw_lost("cancelled");  // no request may be sent after cancel()
  HttpResponse response;
  Link& link = connect();
  try {
    link.stream.set_silence_timeout(options.silence_timeout_ms);
    const bool early = link.send(request, lease_);
    if (!link.receive(response, options) || early) link_.reset();
  } catch (...) {
    link_.reset();
    throw;
  }
  return response;
}

std::string HttpResponse::header(std::string_view name) const {
  const auto same = [name](const std::pair<std::string, std::string>& field) {
    return beast::iequals(field.first, {name.data(), name.size()});
  };
  const auto found = std::find_if(headers.begin(), headers.end(), same);
  return found == headers.end() ? std::string() : found->second;
}

std::string percent_encode(std::string_view bytes, bool keep_slashes) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                       (byte >= '0' && byte <= '9') || byte == '-' || byte == '.' || byte == '_' ||
                       byte == '~' || (keep_slashes && byte == '/');
    if (plain) {
      out += c;
    } else {
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

}  // namespace moorage::cli
