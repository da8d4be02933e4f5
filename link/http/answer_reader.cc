#include "link/http/answer_reader.h"

#include <algorithm>
#include <array>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>

#include "base/error.h"

namespace moorage::link {
namespace {

namespace http = boost::beast::http;

constexpr size_t kPiece = 64 << 10;

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return lower;
}

}  // namespace

void HttpHeaders::add(std::string name, std::string value) {
  all_.emplace_back(lower_case(name), std::move(value));
}

std::string HttpHeaders::get(std::string_view name) const {
  const std::string wanted = lower_case(name);
  for (const auto& [key, value] : all_) {
    if (key == wanted) return value;
  }
  return {};
}

struct AnswerReader::Parser {
  http::response_parser<http::buffer_body> answer;
};

AnswerReader::AnswerReader(std::unique_ptr<ByteStream> stream, const HttpLimits& limits)
    : stream_(std::move(stream)), limits_(limits), parser_(std::make_unique<Parser>()) {
  parser_->answer.header_limit(limits.max_head_bytes);
  parser_->answer.body_limit(boost::none);
}

AnswerReader::~AnswerReader() = default;

void AnswerReader::fill(Deadline deadline) {
  // The parser takes all but part of a line; it may also want the whole head at once.
  if (held_.size() > limits_.max_head_bytes)
    throw Error(Code::corrupted, "the head of the answer, or a line in it, is too long");
  const size_t before = held_.size();
  held_.resize(before + kPiece);
  size_t size = 0;
  try {
    size = stream_->read(std::span(held_).subspan(before), deadline);
  } catch (...) {
    held_.resize(before);
    throw;
  }
  held_.resize(before + size);
  if (size == 0) parse(true);
}

void AnswerReader::parse(bool at_end) {
  boost::beast::error_code error;
  auto& answer = parser_->answer;
  if (at_end) {
    if (!answer.got_some()) throw Error(Code::io, "it closed the connection without an answer");
    answer.put_eof(error);
    if (error) throw Error(Code::io, "the answer was cut off");
    return;
  }
  held_.erase(0, answer.put(boost::asio::const_buffer(held_.data(), held_.size()), error));
  // By value: another layer may compile Beast with an error category of its own.
  const bool more = error.value() == static_cast<int>(http::error::need_more) ||
                    error.value() == static_cast<int>(http::error::need_buffer);
  if (error && !more) throw Error(Code::corrupted, "not an HTTP answer: " + error.message());
}

void AnswerReader::read_head(Deadline deadline) {
  auto& answer = parser_->answer;
  while (!answer.is_header_done()) {
    fill(deadline);
    if (!held_.empty()) parse(false);
  }
  status_ = answer.get().result_int();
  for (const auto& field : answer.get())
    headers_.add(std::string(field.name_string()), std::string(field.value()));
  if (status_ < 101 || (status_ > 101 && status_ < 200))
    throw Error(Code::corrupted, "an answer with the status " + std::to_string(status_));
}

size_t AnswerReader::read(std::span<char> buffer, Deadline deadline) {
  auto& answer = parser_->answer;
  answer.eager(true);
  while (!answer.is_done()) {
    auto& body = answer.get().body();
    body.data = buffer.data();
    body.size = buffer.size();
    body.more = true;
    if (!held_.empty()) parse(false);
    if (const size_t size = buffer.size() - body.size; size > 0) return size;
    if (!answer.is_done()) fill(deadline);
  }
  return 0;
}

bool AnswerReader::can_be_kept() const {
  return parser_->answer.is_done() && parser_->answer.keep_alive() && held_.empty() &&
         !parser_->answer.need_eof();
}

std::unique_ptr<ByteStream> AnswerReader::take_stream() { return std::move(stream_); }
std::string AnswerReader::take_early_bytes() { return std::move(held_); }

}  // namespace moorage::link
