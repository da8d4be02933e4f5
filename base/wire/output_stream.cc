#include "base/wire/output_stream.h"

#include "base/error.h"

namespace moorage::base {
namespace {

constexpr size_t kHeaderBytes = 8;
// The record of an exec with 2 MiB of arguments, which JSON may escape and repeat as base64.
constexpr size_t kMaxPayloadBytes = 16 << 20;

size_t payload_size(std::string_view header) {
  auto byte = [&](size_t i) { return size_t{static_cast<unsigned char>(header[i])}; };
  const bool known = byte(0) >= static_cast<size_t>(RecordKind::standard_output) &&
                     byte(0) <= static_cast<size_t>(RecordKind::error);
  const size_t size = byte(4) << 24 | byte(5) << 16 | byte(6) << 8 | byte(7);
  if (!known || byte(1) != 0 || byte(2) != 0 || byte(3) != 0 || size > kMaxPayloadBytes) {
    throw Error(Code::corrupted, "invalid record in the output stream");
  }
  return size;
}

}  // namespace

std::string encode_record(RecordKind kind, std::string_view payload) {
  if (payload.size() > kMaxPayloadBytes) {
    throw Error(Code::internal, "output record too long: " + std::to_string(payload.size()));
  }
  const auto size = static_cast<uint32_t>(payload.size());
  std::string bytes(kHeaderBytes, '\0');
  bytes[0] = static_cast<char>(kind);
  for (int i = 0; i < 4; ++i) bytes[4 + i] = static_cast<char>(size >> (24 - 8 * i));
  bytes += payload;
  return bytes;
}

void RecordParser::feed(std::string_view bytes) {
  buffer_ += bytes;
  std::string_view rest = buffer_;
  while (rest.size() >= kHeaderBytes) {
    const size_t size = payload_size(rest);
    if (rest.size() < kHeaderBytes + size) break;
    callback_(static_cast<RecordKind>(rest[0]), rest.substr(kHeaderBytes, size));
    rest.remove_prefix(kHeaderBytes + size);
  }
  buffer_.erase(0, buffer_.size() - rest.size());
}

}  // namespace moorage::base
