// Writes the exec journal (base/journal.h): one writev a frame. When the file system is full or
// fails, the rest of the frame is kept and tried again every 200 ms; the file is append-only and
// this is its only writer, so a frame cut in two by a short write still ends up whole.
//
// Its room is what the file may take of the disk. The daemon gives the middle of a long journal
// back to the disk while the command writes, so one that finds no room waits, for kRoomPatience at
// most: there may be no daemon now. Then output is dropped, all but the last kTailBytes of it, and
// counted; a `limit` frame says since when, and a gap how much, when there is room again, at the
// end of the command, or at the end of its late output.
#pragma once

#include <deque>

#include "base/fd.h"
#include "warden/loop.h"
#include "warden/output_sink.h"

namespace moorage::warden {

struct JournalRoom {
  uint64_t output_bytes = 0;  // of output, 0: no limit; what comes later is dropped and counted
  uint64_t file_bytes = 0;    // of the disk; if not 0, output_bytes means nothing
};

inline constexpr uint64_t kLateBytes = 16 << 20;  // of late output, beyond that only the last
inline constexpr size_t kTailBytes = 256 << 10;

class JournalSink : public OutputSink {
 public:
  JournalSink(Loop& loop, base::Fd file, JournalRoom room);

  void started(uint32_t pid) override;
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

  base::Fd file_;
  Timer retry_;
  Timer look_for_room_;
  std::string held_;  // bytes that the file did not take yet
  JournalRoom room_;
  uint64_t file_bytes_ = 0;  // written so far
  uint64_t offset_ = 0;      // of the next output byte
  uint64_t late_bytes_ = 0;
  bool ended_ = false;
  int64_t full_since_ms_ = 0;  // waits for room since; 0: does not
  bool dropping_ = false;
  base::Gap gap_;           // of what is dropped, but for tail_
  std::deque<Piece> tail_;  // the last of it
  size_t tail_bytes_ = 0;
  uint64_t omitted_bytes_ = 0;  // all that was dropped before the end
};

}  // namespace moorage::warden
