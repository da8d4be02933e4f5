// Reads one HTTP/1.1 answer: its head, then its body in pieces as it arrives. Memory is bounded by
// the limit of the head, whatever the other side sends. Errors as byte_stream.h, and corrupted for
// an answer that is not HTTP or has too large a head; an answer that ends before its end is io.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "link/http/byte_stream.h"

namespace moorage::link {

struct HttpLimits {
  uint32_t max_head_bytes = 32 << 10;
  size_t max_body_bytes = 4 << 20;  // of a body that is kept; a streamed one has no limit
};

class HttpHeaders {
 public:
  void add(std::string name, std::string value);
  std::string get(std::string_view name) const;  // in any case; empty: not there

 private:
  std::vector<std::pair<std::string, std::string>> all_;
};

class AnswerReader {
 public:
  AnswerReader(std::unique_ptr<ByteStream> stream, const HttpLimits& limits);
  ~AnswerReader();

  void read_head(Deadline deadline);
  int status() const { return status_; }
  const HttpHeaders& headers() const { return headers_; }
  // At least one byte of the body; 0: all of it was read.
  size_t read(std::span<char> buffer, Deadline deadline);

  ByteStream& stream() { return *stream_; }
  bool can_be_kept() const;  // the connection, for a next exchange; once all was read
  std::unique_ptr<ByteStream> take_stream();
  std::string take_early_bytes();  // that came behind a head without body

 private:
  struct Parser;
  void fill(Deadline deadline);
  void parse(bool at_end);

  std::unique_ptr<ByteStream> stream_;
  const HttpLimits limits_;
  std::unique_ptr<Parser> parser_;
  std::string held_;  // arrived, not parsed
  int status_ = 0;
  HttpHeaders headers_;
};

}  // namespace moorage::link
