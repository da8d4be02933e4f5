#include "daemon/http/connection.h"

#include <boost/beast/core/error.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/system/system_error.hpp>

#include "base/log.h"
#include "workspace/access/leases.h"

namespace moorage::daemon {
namespace {

namespace http = beast::http;

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

// Answers a malformed head; returns nothing for a peer that left or timed out.
std::optional<Reply> refusal(const boost::system::system_error& failure) {
  if (failure.code() == http::error::header_limit) {
    return Reply::json(error_json(Error(Code::invalid_argument, "the request head is too large")),
                       431);
  }
  const bool parse =
      failure.code().category() == make_error_code(http::error::bad_target).category();
  if (!parse || failure.code() == http::error::end_of_stream ||
      failure.code() == http::error::partial_message) {
    return std::nullopt;
  }
  return error_reply(Error(Code::invalid_argument, "malformed HTTP: " + failure.code().message()));
}

using Parser = http::request_parser<http::buffer_body>;

// False: the buffer holds too little for another step.
bool parse(Parser& parser, beast::flat_buffer& buffer) {
  if (buffer.size() == 0) return false;
  beast::error_code error;
  const size_t used = parser.put(buffer.data(), error);
  buffer.consume(used);
  if (error && error != http::error::need_more && error != http::error::need_buffer) {
    throw boost::system::system_error(error);
  }
  return used > 0;
}

// All values of a field that may be repeated (RFC 9110, 5.3).
std::string joined(const Parser::value_type& message, http::field name) {
  std::string all;
  const auto fields = message.equal_range(name);
  for (auto field = fields.first; field != fields.second; ++field)
    all += (all.empty() ? "" : ", ") + std::string(view(field->value()));
  return all;
}

// Refuses a repeated Moorage-Lease: two readers could pick different lines.
std::vector<workspace::LeaseClaim> leases_of(const Parser::value_type& message) {
  const auto fields = message.equal_range("Moorage-Lease");
  if (fields.first == fields.second) return {};
  if (std::next(fields.first) != fields.second)
    throw Error(Code::invalid_argument, "the header Moorage-Lease was sent twice; send it once");
  return workspace::parse_lease_claims(view(fields.first->value()));
}

}  // namespace

struct Connection::Incoming {
  Parser parser;
  Request request;
  const Route* route = nullptr;
  bool continue_sent = false;
};

Connection::Connection(Stream::socket_type socket, workspace::Caller caller,
                       const Server::Parts& parts)
    : parts_(parts),
      stream_(std::move(socket)),
      caller_(std::move(caller)),
      writer_(stream_, parts.worker_pools, parts.limits) {}

void Connection::stop() {
  stopping_ = true;
  writer_.stop();
  if (interruptible_) stream_.close();
}

Awaitable<void> Connection::run() {
  try {
    bool again = true;
    while (again && !stopping_) again = co_await serve_one();
  } catch (const boost::system::system_error& error) {
    base::log(base::LogLevel::debug, "http.connection",
              {{"uid", caller_.uid}, {"end", error.what()}});
  } catch (const std::exception& error) {
    base::log(base::LogLevel::error, "http.connection",
              {{"uid", caller_.uid}, {"end", error.what()}});
  }
}

Awaitable<bool> Connection::serve_one() {
  const bool came = co_await wait_for_request();
  if (!came) co_return false;
  Incoming in;
  std::optional<Reply> reply;
  std::optional<boost::system::system_error> malformed;
  try {
    co_await read_head(in);
    reply.emplace(co_await answer(in));
  } catch (const boost::system::system_error& error) {
    malformed = error;
  } catch (...) {
    reply = error_reply(current_error());
  }
  if (malformed) reply = refusal(*malformed);
  if (!reply) co_return false;
  // A keep-alive connection is reusable only after the whole request was read.
  const bool usable = !malformed && in.parser.is_done() && in.parser.get().keep_alive();
  const ReplyWriter::Options options{.lane = in.route ? in.route->lane : Lane::quick,
                                     .share = in.request.share(),
                                     .chunks_allowed = malformed || in.parser.get().version() >= 11,
                                     .close = !usable || stopping_,
                                     .answers = &parts_.router.answers(in.route)};
  const bool whole = co_await writer_.write(std::move(*reply), options);
  co_return whole;
}

// False: the peer left between two requests.
Awaitable<bool> Connection::wait_for_request() {
  if (buffer_.size() > 0) co_return true;
  interruptible_ = true;
  stream_.expires_after(parts_.limits.idle);
  const auto room = buffer_.prepare(4096);
  const auto [error, bytes] = co_await stream_.async_read_some(room, kAsTuple);
  interruptible_ = false;
  stream_.expires_never();
  if (error) co_return false;
  buffer_.commit(bytes);
  co_return true;
}

Awaitable<void> Connection::read_head(Incoming& in) {
  in.parser.header_limit(parts_.limits.header_bytes);
  in.parser.body_limit(boost::none);  // each reader of a body sets its own limit
  stream_.expires_after(parts_.limits.header);
  co_await http::async_read_header(stream_, buffer_, in.parser, asio::use_awaitable);
  stream_.expires_never();
}

Awaitable<Reply> Connection::answer(Incoming& in) {
  const auto& message = in.parser.get();
  Request& request = in.request;
  request.method = std::string(view(message.method_string()));
  request.caller = caller_;
  request.caller.asked = std::chrono::steady_clock::now();
  request.accept = std::string(view(message[http::field::accept]));
  const auto key = message.find("Idempotency-Key");
  if (key != message.end()) {
    request.idempotency_key = std::string(view(key->value()));
    check_idempotency_key(request.idempotency_key);
  }
  request.caller.leases = leases_of(message);
  const auto found = parts_.router.match(view(message.target()), request);
  if (const auto* missed = std::get_if<Router::Missed>(&found)) {
    if (missed->allow.empty()) throw Error(Code::not_found, "this API has no path " + request.path);
    const Error refused(Code::unsupported, request.path + " does not support " + request.method);
    Reply reply = Reply::json(error_json(refused), 405);
    reply.headers.emplace_back("Allow", missed->allow);
    co_return reply;
  }
  in.route = std::get<const Route*>(found);
  in.route->access.check(request.caller);
  request.caller.route = in.route->access.right();
  request.if_match = joined(message, http::field::if_match);
  request.if_none_match = joined(message, http::field::if_none_match);
  const bool asks = !request.if_match.empty() || !request.if_none_match.empty();
  if (asks && !in.route->conditional && request.method != "GET") {
    throw Error(Code::invalid_argument,
                "this request does not support If-Match or If-None-Match; leave them out");
  }
  if (in.route->is_upload()) {
    Reply reply = co_await receive_upload(in);
    co_return reply;
  }
  request.body = co_await read_json(in);
  if (request.method == "GET" && !request.body.empty()) {
    throw Error(Code::invalid_argument, "a GET request must not have a body");
  }
  const auto verb = [this, &in] { return parts_.dispatcher.answer(*in.route, in.request); };
  const base::Share share = request.share();
  Reply reply = co_await on_lane(parts_.worker_pools, in.route->lane, share, verb);
  co_return reply;
}

Awaitable<std::string> Connection::read_json(Incoming& in) {
  std::string body;
  const auto length = in.parser.content_length();
  const uint64_t max = parts_.limits.json_bytes;
  const auto check = [&body, max](uint64_t more) {
    if (body.size() + more > max) {
      throw Error(Code::invalid_argument,
                  "the JSON body is larger than " + std::to_string(max) + " bytes",
                  "send long data as a file or on standard input; the limit is "
                  "api.max_json_bytes of the configuration");
    }
  };
  if (length) check(*length);
  co_await grant_continue(in);
  stream_.expires_after(parts_.limits.json_body);
  while (!in.parser.is_done()) {
    const std::string piece = co_await read_piece(in);
    check(piece.size());
    body += piece;
  }
  stream_.expires_never();
  co_return body;
}

Awaitable<void> Connection::grant_continue(Incoming& in) {
  if (in.parser.is_done() || view(in.parser.get()[http::field::expect]) != "100-continue")
    co_return;
  co_await writer_.write_all(kContinue);
}

// Returns at least one byte, unless the body ended; then everything already received, up to
// kPieceBytes. Never waits while it holds bytes: half of a chunk's head may have come with them,
// and the rest may take hours.
Awaitable<std::string> Connection::read_piece(Incoming& in) {
  std::string piece(kPieceBytes, '\0');
  size_t filled = 0;
  while (!in.parser.is_done() && filled < piece.size()) {
    auto& body = in.parser.get().body();
    body.data = piece.data() + filled;
    body.size = piece.size() - filled;
    const bool moved = parse(in.parser, buffer_);
    filled = piece.size() - body.size;
    if (moved) continue;
    if (filled > 0 && stream_.socket().available() == 0) break;
    const auto room = buffer_.prepare(kPieceBytes);
    const size_t bytes = co_await stream_.async_read_some(room, asio::use_awaitable);
    buffer_.commit(bytes);
  }
  piece.resize(filled);
  co_return piece;
}

Awaitable<Reply> Connection::receive_upload(Incoming& in) {
  const Lane lane = in.route->lane;
  const base::Share share = in.request.share();
  const auto begin = [this, &in] { return parts_.dispatcher.begin_upload(*in.route, in.request); };
  const std::unique_ptr<BodySink> sink = co_await on_lane(parts_.worker_pools, lane, share, begin);
  co_await grant_continue(in);
  while (!in.parser.is_done()) {
    if (sink->patient()) {
      interruptible_ = true;
      stream_.expires_never();
    } else {
      stream_.expires_after(parts_.limits.progress);
    }
    const std::string piece = co_await read_piece(in);
    interruptible_ = false;
    stream_.expires_never();
    const auto write = [&sink, &piece] { return sink->write(piece); };
    auto taken = piece.empty() ? BodySink::Taken::all : BodySink::Taken::ask_again;
    while (taken == BodySink::Taken::ask_again) {
      if (stopping_ && sink->patient())
        throw boost::system::system_error(asio::error::operation_aborted);
      taken = co_await on_lane(parts_.worker_pools, lane, share, write);
    }
  }
  const auto finish = [&sink] { return sink->finish(); };
  Reply reply = co_await on_lane(parts_.worker_pools, lane, share, finish);
  co_return reply;
}

}  // namespace moorage::daemon
