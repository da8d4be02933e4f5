// How output travels over HTTP (content type application/vnd.moorage.output): records of an 8-byte
// header {u8 kind, 3 zero bytes, u32 payload bytes big endian} and the payload, as in Docker's
// multiplexed stream. Kinds: 1 standard output, 2 standard error, 3 terminal, 4 keep-alive (empty,
// or JSON {"notice":TEXT}: why output is delayed), 5 spool limit reached (JSON), 6 end (JSON: the
// exec as in GET /v1/execs/ID), 7 position (JSON {"offset":N}: N output bytes precede the next
// record), 8 error (JSON {code,message,hint}). The client's next offset = the last position +
// payload bytes seen of kinds 1-3.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace moorage::base {

enum class RecordKind : uint8_t {
  standard_output = 1,
  standard_error = 2,
  terminal = 3,
  keep_alive = 4,
  limit = 5,
  end = 6,
  position = 7,
  error = 8,
};

std::string encode_record(RecordKind kind, std::string_view payload);

// Push parser: accepts the byte stream in any pieces; calls back once per whole record. Throws
// Error(corrupted) on an unknown header or a payload over 16 MiB.
class RecordParser {
 public:
  using Callback = std::function<void(RecordKind, std::string_view)>;
  explicit RecordParser(Callback callback) : callback_(std::move(callback)) {}
  void feed(std::string_view bytes);
  bool in_the_middle() const { return !buffer_.empty(); }

 private:
  Callback callback_;
  std::string buffer_;
};

}  // namespace moorage::base
