// The exec journal: one append-only file an exec, made by the daemon outside every sandbox, written
// by the warden through a descriptor, read by the daemon at any time. Frames follow each other:
//
//   offset size
//   0      4    magic "MJ1\n"
//   4      1    kind (FrameKind)
//   5      3    zero
//   8      4    payload bytes, little endian, at most kMaxPayload
//   12     4    crc32 (zlib) of bytes 0-11, 16-31 and the payload
//   16     8    wall time, ns since 1970
//   24     8    output offset: sum of the output payload bytes of all earlier frames
//   32     ..   payload
//
// A frame is written with one writev. Only the warden writes; after `end` comes only late output of
// processes that outlive their command. Dropped output leaves a `gap` of whole frames: where the
// warden had no room, or in the middle of a long journal, where the daemon writes it over the first
// dropped frame and returns the space of all of them to the disk (workspace/exec/journal_trim.cc).
// A power cut leaves a tail with a bad checksum: readers stop there and say so; it is not an error.
// Rejected: text lines (output can forge them), one file per stream (loses the order), SQLite (a
// sync per frame), a ring of fixed-size files (the warden would need a descriptor that can
// overwrite records).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::base {

enum class FrameKind : uint8_t {
  standard_output = 1,
  standard_error = 2,
  terminal = 3,  // output of a PTY
  // payload: JSON {"pid": inside}; with "merge_output": true, standard_output is both streams, in
  // the order of writing
  started = 4,
  limit = 5,  // no room: later output is read and dropped; payload empty
  end = 6,    // payload: JSON, see ExecEnd in warden/exec.h
  gap = 7,    // payload: Gap; since 0.2, older readers stop here as at a torn tail
};
bool is_output(FrameKind kind);

inline constexpr size_t kFrameHeaderBytes = 32;
inline constexpr size_t kMaxPayload = 1 << 20;

struct FrameHeader {
  FrameKind kind = FrameKind::standard_output;
  uint32_t payload_bytes = 0;
  int64_t wall_ns = 0;
  uint64_t output_offset = 0;
};

// Output that was written but not kept; it began at the frame's output offset.
struct Gap {
  uint64_t skip_bytes = 0;     // in the file, after this frame: now meaningless
  uint64_t dropped_bytes = 0;  // of output; the next frame's offset is higher by this
  int64_t first_ns = 0;        // wall time of its first and last frame
  int64_t last_ns = 0;
};
inline constexpr size_t kGapBytes = 32;
std::string encode_gap(const Gap& gap);
std::optional<Gap> decode_gap(std::string_view payload);

std::array<char, kFrameHeaderBytes> encode_frame_header(const FrameHeader& header,
                                                        std::string_view payload);

struct Frame {
  FrameHeader header;
  std::string payload;
};

// Reads frames of one journal file with pread; takes no lock, so it may follow a live writer.
class JournalReader {
 public:
  explicit JournalReader(int fd) : fd_(fd) {}  // fd is borrowed
  // The next whole frame, or empty at the current end (or at a damaged tail: see damaged()).
  std::optional<Frame> next();
  // Skips whole frames (headers only) until the one with output byte `offset`; next() then returns
  // that frame, cut to begin at exactly this byte, or the gap that covers it. Frames without output
  // at `offset` are not skipped, nor is `end`. An offset beyond the current end is kept until
  // output reaches it.
  void seek_output(uint64_t offset);
  // Steps over all existing frames, by headers alone, and returns the gaps.
  struct GapPlace {
    uint64_t offset = 0;  // of output, where it begins
    uint64_t end = 0;     // of the next kept output
  };
  std::vector<GapPlace> skip_to_end();
  uint64_t file_position() const { return position_; }  // of the next frame
  uint64_t output_offset() const { return output_offset_; }
  // The last next() met bytes that form no whole frame: a torn tail if the writer is gone;
  // otherwise perhaps a frame still being written, and the next call may find it whole.
  bool damaged() const { return damaged_; }

 private:
  struct Header {
    FrameHeader fields;
    std::array<char, kFrameHeaderBytes> bytes;
  };
  std::optional<Header> peek_header();
  std::optional<Frame> read_frame(const Header& header) const;
  std::optional<Gap> gap_in(const Frame& frame) const;
  bool step_over_gap(const Header& header);
  uint64_t file_size() const;
  void step_over(const FrameHeader& header, const Gap& gap = {});
  void skip_to_wanted();
  bool find_again(uint64_t bytes);

  int fd_;
  uint64_t position_ = 0;          // of the next frame in the file
  uint64_t output_offset_ = 0;     // expected in the next frame
  uint64_t wanted_offset_ = 0;     // of seek_output
  uint64_t lost_at_ = UINT64_MAX;  // where find_again last searched
  bool damaged_ = false;
};

}  // namespace moorage::base
