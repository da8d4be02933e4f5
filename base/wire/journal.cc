#include "base/wire/journal.h"

#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/little_endian.h"
#include "base/os/fd.h"

namespace moorage::base {
namespace {

constexpr std::string_view kMagic = "MJ1\n";
constexpr size_t kCrcAt = 12;

uint32_t frame_crc(const char* header, std::string_view payload) {
  auto add = [](uLong crc, const char* bytes, size_t size) {
    return crc32_z(crc, reinterpret_cast<const Bytef*>(bytes), size);
  };
  uLong crc = add(crc32(0, nullptr, 0), header, kCrcAt);
  crc = add(crc, header + 16, kFrameHeaderBytes - 16);
  // crc32_z treats a null pointer as a request to start over.
  if (!payload.empty()) crc = add(crc, payload.data(), payload.size());
  return static_cast<uint32_t>(crc);
}

bool known_kind(uint8_t kind) {
  return kind >= static_cast<uint8_t>(FrameKind::standard_output) &&
         kind <= static_cast<uint8_t>(FrameKind::gap);
}

}  // namespace

bool is_output(FrameKind kind) {
  return kind == FrameKind::standard_output || kind == FrameKind::standard_error ||
         kind == FrameKind::terminal;
}

std::string encode_gap(const Gap& gap) {
  std::string payload(kGapBytes, '\0');
  put_number(&payload[0], gap.skip_bytes);
  put_number(&payload[8], gap.dropped_bytes);
  put_number(&payload[16], gap.first_ns);
  put_number(&payload[24], gap.last_ns);
  return payload;
}

std::optional<Gap> decode_gap(std::string_view payload) {
  if (payload.size() != kGapBytes) return std::nullopt;
  return Gap{number_at<uint64_t>(&payload[0]), number_at<uint64_t>(&payload[8]),
             number_at<int64_t>(&payload[16]), number_at<int64_t>(&payload[24])};
}

std::array<char, kFrameHeaderBytes> encode_frame_header(const FrameHeader& header,
                                                        std::string_view payload) {
  assert(payload.size() <= kMaxPayload && header.payload_bytes == payload.size());
  std::array<char, kFrameHeaderBytes> bytes{};
  memcpy(bytes.data(), kMagic.data(), kMagic.size());
  bytes[4] = static_cast<char>(header.kind);
  put_number(&bytes[8], header.payload_bytes);
  put_number(&bytes[16], header.wall_ns);
  put_number(&bytes[24], header.output_offset);
  put_number(&bytes[kCrcAt], frame_crc(bytes.data(), payload));
  return bytes;
}

std::optional<JournalReader::Header> JournalReader::peek_header() {
  const std::string bytes = read_at(fd_, kFrameHeaderBytes, position_);
  damaged_ = !bytes.empty();  // unless all of it is a valid frame
  if (bytes.size() < kFrameHeaderBytes || !bytes.starts_with(kMagic)) return std::nullopt;
  const auto kind = static_cast<uint8_t>(bytes[4]);
  if (!known_kind(kind) || bytes[5] != 0 || bytes[6] != 0 || bytes[7] != 0) return std::nullopt;
  Header result;
  result.fields.kind = static_cast<FrameKind>(kind);
  result.fields.payload_bytes = number_at<uint32_t>(&bytes[8]);
  result.fields.wall_ns = number_at<int64_t>(&bytes[16]);
  result.fields.output_offset = number_at<uint64_t>(&bytes[24]);
  memcpy(result.bytes.data(), bytes.data(), bytes.size());
  // A wrong offset is as bad as a wrong checksum: clients rely on offsets when they resume.
  if (result.fields.payload_bytes > kMaxPayload || result.fields.output_offset != output_offset_) {
    return std::nullopt;
  }
  return result;
}

uint64_t JournalReader::file_size() const {
  struct stat status;
  check(fstat(fd_, &status), "inspect the journal");
  return static_cast<uint64_t>(status.st_size);
}

void JournalReader::step_over(const FrameHeader& header, const Gap& gap) {
  position_ += kFrameHeaderBytes + header.payload_bytes + gap.skip_bytes;
  if (is_output(header.kind)) output_offset_ += header.payload_bytes;
  output_offset_ += gap.dropped_bytes;
  damaged_ = false;
}

// Empty: the bytes are incomplete. A gap is written in place, so a reader may see half of it.
std::optional<Frame> JournalReader::read_frame(const Header& header) const {
  Frame frame{header.fields, {}};
  frame.payload = read_at(fd_, frame.header.payload_bytes, position_ + kFrameHeaderBytes);
  if (frame.payload.size() != frame.header.payload_bytes) return std::nullopt;
  if (frame_crc(header.bytes.data(), frame.payload) != number_at<uint32_t>(&header.bytes[kCrcAt])) {
    return std::nullopt;
  }
  return frame;
}

// The journal is within a sandbox's reach: a gap must not leave the file or overflow a number.
std::optional<Gap> JournalReader::gap_in(const Frame& frame) const {
  const auto gap = decode_gap(frame.payload);
  const uint64_t size = file_size();
  const uint64_t behind = position_ + kFrameHeaderBytes + frame.payload.size();
  if (!gap || behind > size || gap->skip_bytes > size - behind) return std::nullopt;
  if (gap->dropped_bytes > UINT64_MAX / 2 - output_offset_) return std::nullopt;
  return gap;
}

bool JournalReader::step_over_gap(const Header& header) {
  const auto frame = read_frame(header);
  const auto gap = frame ? gap_in(*frame) : std::nullopt;
  if (!gap || output_offset_ + gap->dropped_bytes > wanted_offset_) return false;
  step_over(frame->header, *gap);
  return true;
}

void JournalReader::skip_to_wanted() {
  if (output_offset_ >= wanted_offset_) return;
  const uint64_t size = file_size();
  while (auto header = peek_header()) {
    const FrameHeader& fields = header->fields;
    if (fields.kind == FrameKind::end || output_offset_ >= wanted_offset_) return;
    if (position_ + kFrameHeaderBytes + fields.payload_bytes > size) return;
    if (is_output(fields.kind) && output_offset_ + fields.payload_bytes > wanted_offset_) return;
    if (fields.kind != FrameKind::gap) {
      step_over(fields);
    } else if (!step_over_gap(*header)) {
      return;
    }
  }
}

// A reader may be positioned inside a range removed since. A pass from the beginning finds the way
// around it. False: no other position exists; tried once per position. `bytes` of a frame are not
// valid.
bool JournalReader::find_again(uint64_t bytes) {
  // An incomplete frame is still being written.
  if (file_size() < position_ + bytes) return false;
  if (std::exchange(lost_at_, position_) == position_) return false;
  const uint64_t position = position_;
  const uint64_t offset = output_offset_;
  seek_output(std::max(offset, wanted_offset_));
  if (position_ < position) {
    const auto header = peek_header();
    if (header && header->fields.kind == FrameKind::gap) return true;
  }
  if (position_ > position) return true;
  position_ = position;
  output_offset_ = offset;
  damaged_ = true;
  return false;
}

std::optional<Frame> JournalReader::next() {
  skip_to_wanted();
  auto header = peek_header();
  if (!header && damaged_ && find_again(kFrameHeaderBytes)) header = peek_header();
  if (!header) return std::nullopt;
  auto frame = read_frame(*header);
  if (!frame && find_again(kFrameHeaderBytes + header->fields.payload_bytes)) {
    header = peek_header();
    if (header) frame = read_frame(*header);
  }
  if (!frame) return std::nullopt;
  const FrameHeader fields = frame->header;
  if (fields.kind == FrameKind::gap) {
    const auto gap = gap_in(*frame);
    if (!gap) return std::nullopt;
    step_over(fields, *gap);
    return frame;
  }
  if (is_output(fields.kind) && output_offset_ < wanted_offset_) {
    const uint64_t cut = wanted_offset_ - output_offset_;
    frame->payload.erase(0, cut);
    frame->header.payload_bytes -= static_cast<uint32_t>(cut);
    frame->header.output_offset += cut;
  }
  step_over(fields);
  return frame;
}

std::vector<JournalReader::GapPlace> JournalReader::skip_to_end() {
  std::vector<GapPlace> gaps;
  const uint64_t size = file_size();
  wanted_offset_ = UINT64_MAX;
  while (auto header = peek_header()) {
    if (position_ + kFrameHeaderBytes + header->fields.payload_bytes > size) break;
    const uint64_t begin = output_offset_;
    if (header->fields.kind != FrameKind::gap) {
      step_over(header->fields);
    } else if (step_over_gap(*header)) {
      gaps.push_back({begin, output_offset_});
    } else {
      break;
    }
  }
  return gaps;
}

void JournalReader::seek_output(uint64_t offset) {
  position_ = 0;
  output_offset_ = 0;
  wanted_offset_ = offset;
  skip_to_wanted();
}

}  // namespace moorage::base
