// Writes the exec journal (base/wire/journal.h): one writev per frame. On a full or failing file
// system it keeps the rest of the frame and retries every 200 ms. The file is append-only and has
// no other writer, so a frame split by a short write still ends up whole.
//
// Its room is the file's disk limit. The daemon frees the middle of a long journal while the
// command writes, so a journal without room waits, at most kRoomPatience: there may be no daemon.
// Then output is dropped and counted, except its last kTailBytes. A `limit` frame marks the start,
// and a gap gives the amount: when there is room again, at the command's end, or at the end of its
// late output.
#pragma once

#include <deque>

#include "base/os/fd.h"
#include "warden/io/loop.h"
#include "warden/output/output_sink.h"

namespace moorage::warden {

struct JournalRoom {
  uint64_t output_bytes = 0;  // of output, 0: no limit; the rest is dropped and counted
  uint64_t file_bytes = 0;    // of the disk; unless 0, output_bytes is ignored
};

inline constexpr uint64_t kLateBytes = 16
                                       << 20;  // of late output; beyond that only its tail is kept
inline constexpr size_t kTailBytes = 256 << 10;

class JournalSink : public OutputSink {
 public:
  JournalSink(Loop& loop, Fd file, JournalRoom room);

  void started(uint32_t pid, bool merged) override;
  bool ready() const override { return held_.empty() && full_since_ms_ == 0; }
  void write(base::FrameKind kind, std::string_view bytes) override;
  void end(const ExecEnd& end) override;
  bool settled() const override { return held_.empty(); }
  bool keeps_late() const override { return true; }
  void close() override { write_dropped(); }
  void stop() override;

 private:
  struct Piece {
    base::FrameKind kind{};
    int64_t wall_ns = 0;
    std::string bytes;
  };
  bool has_room();
  void wait_for_room();
  void write_output(const Piece& piece, std::string_view bytes);
  void write_to_limit(base::FrameKind kind, std::string_view bytes);
  void drop(base::FrameKind kind, std::string_view bytes);
  void write_dropped();
  void append(base::FrameKind kind, std::string_view payload, int64_t wall_ns);
  void retry();

  Fd file_;
  Timer retry_;
  Timer room_timer_;
  std::string held_;  // bytes not yet written to the file
  JournalRoom room_;
  uint64_t file_bytes_ = 0;  // written so far
  uint64_t offset_ = 0;      // of the next output byte
  uint64_t late_bytes_ = 0;
  bool ended_ = false;
  int64_t full_since_ms_ = 0;  // when the wait for room began; 0: not waiting
  bool dropping_ = false;
  base::Gap gap_;           // the dropped output, except tail_
  std::deque<Piece> tail_;  // its tail
  size_t tail_bytes_ = 0;
  uint64_t omitted_bytes_ = 0;  // everything dropped before the end
};

}  // namespace moorage::warden
