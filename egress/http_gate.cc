#include "egress/http_gate.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

#include "base/net/host_name.h"

namespace moorage::egress {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using Code = boost::system::error_code;
using Text = beast::string_view;

// The last chunk is at least "0\r\n\r\n". Beast 1.81 asserts that so much is there when it parses
// on after its first line, so between chunks less is not given to it.
constexpr size_t kLeastChunk = 5;
constexpr std::string_view kSwitching = "HTTP/1.1 101";

}  // namespace

// Judges one request as its parts are parsed; keeps nothing of it.
class HttpGate::Parser : public http::basic_parser<true> {
 public:
  Parser(const std::string& host, uint16_t port, const Judge& judge)
      : host_(host), port_(port), judge_(judge) {
    eager(true);
    header_limit(kMaxHeader);
    body_limit(boost::none);
  }
  const std::string& refusal() const { return refusal_; }
  bool is_websocket() const { return websocket_; }
  bool is_between_chunks() const { return is_header_done() && chunked() && chunk_left_ == 0; }

 private:
  bool is_ours(std::string_view authority) const {
    return base::authority_names(authority, host_, port_);
  }
  void refuse(std::string why, Code& error) {
    refusal_ = std::move(why);
    error = http::error::bad_value;
  }

  void on_request_impl(http::verb method, Text name, Text target, int version,
                       Code& error) override {
    constexpr std::string_view kScheme = "http://";
    if (method == http::verb::connect) return refuse("CONNECT is not carried", error);
    if (version != 11 && version != 10) return refuse("only HTTP/1 is carried here", error);
    std::string_view text(target.data(), target.size());
    if (text.starts_with(kScheme)) {
      text.remove_prefix(kScheme.size());
      const std::string_view authority = text.substr(0, text.find_first_of("/?#"));
      if (!is_ours(authority)) return refuse("the target names another host than " + host_, error);
      text.remove_prefix(authority.size());
    } else if (!text.starts_with('/') && text != "*") {
      return refuse("the target is not a path", error);
    }
    std::string why = judge_({name.data(), name.size()}, text);
    if (!why.empty()) refuse(std::move(why), error);
  }

  void on_field_impl(http::field name, Text, Text text, Code& error) override {
    const std::string_view value(text.data(), text.size());
    if (name == http::field::host) {
      if (++hosts_ > 1) return refuse("two Host headers", error);
      if (!is_ours(value)) refuse("the Host header is not " + host_, error);
    } else if (name == http::field::upgrade) {
      websocket_ = beast::iequals(text, "websocket");
      if (!websocket_) refuse("only websocket is a protocol to upgrade to", error);
    } else if (name == http::field::transfer_encoding) {
      if (++encodings_ > 1 || !beast::iequals(text, "chunked"))
        refuse("the only transfer encoding is chunked", error);
    }
  }

  void on_header_impl(Code& error) override {
    if (hosts_ == 0) refuse("the Host header is missing", error);
  }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, Code&) override {}
  std::size_t on_body_impl(Text bytes, Code&) override { return bytes.size(); }
  void on_chunk_header_impl(std::uint64_t size, Text, Code&) override { chunk_left_ = size; }
  std::size_t on_chunk_body_impl(std::uint64_t left, Text bytes, Code&) override {
    chunk_left_ = left - bytes.size();
    return bytes.size();
  }
  void on_finish_impl(Code&) override {}
  void on_response_impl(int, Text, int, Code&) override {}

  const std::string& host_;
  const uint16_t port_;
  const Judge& judge_;
  int hosts_ = 0;
  int encodings_ = 0;
  bool websocket_ = false;
  uint64_t chunk_left_ = 0;
  std::string refusal_;
};

HttpGate::HttpGate(std::string host, uint16_t port, Judge judge)
    : host_(std::move(host)), port_(port), judge_(std::move(judge)) {}
HttpGate::~HttpGate() = default;

void HttpGate::refuse(std::string_view why) {
  why_ = why;
  std::string body = "moorage: " + std::string(why) + "\n";
  refusal_ =
      "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nConnection: close\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
}

// Parses on; returns how many bytes it took.
size_t HttpGate::parse(std::string_view bytes) {
  Code error;
  const size_t taken = parser_->put(boost::asio::buffer(bytes.data(), bytes.size()), error);
  if (!parser_->refusal().empty()) {
    refuse(parser_->refusal());
  } else if (error && error != http::error::need_more) {
    refuse("not a valid HTTP/1.1 request: " + error.message());
  }
  return taken;
}

void HttpGate::end_request() {
  if (parser_->is_websocket()) {
    if (!first_) return refuse("open a new connection for a WebSocket");
    state_ = State::awaiting_upgrade;
  }
  first_ = false;
  parser_.reset();
}

std::string HttpGate::from_client(std::string_view bytes) {
  if (!refusal_.empty()) return {};
  if (state_ == State::tunnel) return std::string(bytes);
  pending_ += bytes;
  std::string passed;
  while (state_ == State::requests && !pending_.empty()) {
    if (!parser_) parser_ = std::make_unique<Parser>(host_, port_, judge_);
    if (parser_->is_between_chunks() && pending_.size() < kLeastChunk) break;
    const size_t taken = parse(pending_);
    if (!refusal_.empty()) return {};
    header_.append(pending_, 0, taken);
    pending_.erase(0, taken);
    if (!parser_->is_header_done()) break;
    const bool ended = parser_->is_done();
    if (ended) end_request();
    if (!refusal_.empty()) return {};
    passed += std::exchange(header_, {});
    if (taken == 0 && !ended) break;
  }
  if (pending_.size() > 2 * kMaxHeader) refuse("more was sent than the upgrade allows");
  return passed;
}

std::string HttpGate::from_server(std::string_view bytes) {
  if (state_ != State::awaiting_upgrade) return {};
  status_line_ += bytes.substr(0, kSwitching.size() - status_line_.size());
  if (status_line_.size() < kSwitching.size()) return {};
  state_ = status_line_ == kSwitching ? State::tunnel : State::requests;
  if (state_ == State::requests) return from_client({});
  return std::exchange(pending_, {});
}

}  // namespace moorage::egress
