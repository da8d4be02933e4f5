// Parses one HTTP/1.1 message on Beast's parser: keeps the head, appends the decoded body.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

#include "egress/broker/http_message.h"

namespace moorage::egress {

template <bool is_request>
class HttpParser : public boost::beast::http::basic_parser<is_request> {
 public:
  using Base = boost::beast::http::basic_parser<is_request>;
  using ErrorCode = boost::system::error_code;
  using Text = boost::beast::string_view;
  using Head = std::conditional_t<is_request, RequestHead, ResponseHead>;

  static constexpr uint32_t kMaxHeader = 64 << 10;

  HttpParser() {
    this->header_limit(kMaxHeader);
    this->body_limit(boost::none);
  }

  Head head;
  Framing framing;
  std::string body;     // decoded so far; the owner takes it
  std::string upgrade;  // the protocol to change to; empty: none
  std::string host;     // of requests

  // Parses what it can of `pending`, and removes it there. Returns an error's text, or nothing.
  // Stops behind the head.
  std::string parse(std::string& pending) {
    std::string_view left(pending);
    std::string error = parse(left);
    pending.erase(0, pending.size() - left.size());
    return error;
  }
  std::string parse(std::string_view& pending) {
    const bool in_head = !this->is_header_done();
    while (!pending.empty() && !this->is_done()) {
      if (is_between_chunks() && pending.size() < kLeastChunk) break;
      ErrorCode error;
      const size_t taken = this->put(boost::asio::buffer(pending.data(), pending.size()), error);
      pending.remove_prefix(taken);
      if (!refusal_.empty()) return refusal_;
      if (error && error != boost::beast::http::error::need_more)
        return "not valid HTTP/1.1: " + error.message();
      if (in_head && this->is_header_done()) break;
      if (taken == 0) break;
    }
    return {};
  }

 private:
  // Beast 1.81 asserts that the last chunk, "0\r\n\r\n", is whole when it parses one.
  static constexpr size_t kLeastChunk = 5;

  bool is_between_chunks() const {
    return this->is_header_done() && this->chunked() && chunk_left_ == 0;
  }
  static bool is_of_connection(boost::beast::http::field name) {
    using boost::beast::http::field;
    return name == field::connection || name == field::keep_alive ||
           name == field::proxy_connection || name == field::proxy_authorization;
  }
  void refuse(std::string why, ErrorCode& error) {
    refusal_ = std::move(why);
    error = boost::beast::http::error::bad_value;
  }

  void on_request_impl(boost::beast::http::verb, Text method, Text target, int version,
                       ErrorCode& error) override {
    if constexpr (is_request) {
      head.method.assign(method.data(), method.size());
      head.target.assign(target.data(), target.size());
    }
    if (version != 11 && version != 10) refuse("only HTTP/1 is carried here", error);
  }
  void on_response_impl(int status, Text reason, int version, ErrorCode& error) override {
    if constexpr (!is_request) {
      head.status = status;
      head.reason.assign(reason.data(), reason.size());
    }
    if (version != 11 && version != 10) refuse("the host does not speak HTTP/1", error);
  }

  void on_field_impl(boost::beast::http::field name, Text text, Text value,
                     ErrorCode& error) override {
    using boost::beast::http::field;
    if (this->is_header_done()) return;  // a trailer, which goes no further
    const std::string content(value.data(), value.size());
    if (name == field::host) {
      if (is_request && !host.empty()) return refuse("two Host headers", error);
      host = content;
    } else if (name == field::transfer_encoding) {
      if (framing.chunked || !boost::beast::iequals(value, "chunked"))
        return refuse("the only transfer encoding is chunked", error);
      framing.chunked = true;
    } else if (name == field::content_length) {
      if (!framing.length.empty() || content.find(',') != content.npos)
        return refuse("two Content-Length headers", error);
      framing.length = content;
    } else if (name == field::upgrade) {
      upgrade = content;
    } else if (!is_of_connection(name)) {
      head.fields.push_back({std::string(text.data(), text.size()), content});
    }
  }

  void on_header_impl(ErrorCode& error) override {
    if (framing.chunked && !framing.length.empty())
      refuse("both a length and chunks frame the body", error);
  }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, ErrorCode&) override {}
  std::size_t on_body_impl(Text bytes, ErrorCode&) override {
    body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t size, Text, ErrorCode&) override { chunk_left_ = size; }
  std::size_t on_chunk_body_impl(std::uint64_t left, Text bytes, ErrorCode&) override {
    chunk_left_ = left - bytes.size();
    body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_finish_impl(ErrorCode&) override {}

  uint64_t chunk_left_ = 0;
  std::string refusal_;
};

}  // namespace moorage::egress
