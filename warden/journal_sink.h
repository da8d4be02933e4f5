// Writes the exec journal (base/journal.h): one writev a frame. When the file system is full or
// fails, the rest of the frame is kept and tried again every 200 ms; the file is append-only and
// this is its only writer, so a frame cut in two by a short write still ends up whole.
#pragma once

#include "base/fd.h"
#include "warden/loop.h"
#include "warden/output_sink.h"

namespace moorage::warden {

class JournalSink : public OutputSink {
 public:
  // limit_bytes: output kept, 0 for all; then comes one `limit` frame, and the rest is counted
  // only.
  JournalSink(Loop& loop, base::Fd file, uint64_t limit_bytes);

  void started(uint32_t pid) override;
  bool ready() const override { return held_.empty(); }
  void write(base::FrameKind kind, std::string_view bytes) override;
  void end(const ExecEnd& end) override;
  bool settled() const override { return held_.empty(); }

 private:
  void append(base::FrameKind kind, std::string_view payload);
  void retry();

  base::Fd file_;
  Timer retry_;
  std::string held_;  // bytes that the file did not take yet
  uint64_t limit_bytes_;
  uint64_t kept_bytes_ = 0;
  uint64_t omitted_bytes_ = 0;
  bool limit_told_ = false;
};

}  // namespace moorage::warden
