// Output of processes that outlive their command: read for as long as somebody holds the pipe or
// terminal, so that a daemon is neither blocked by a full pipe nor killed by SIGPIPE, and written
// into the command's journal behind its end. Whoever waits for the command has its answer by then.
// At most kMaxLate commands; then the oldest one's pipes are closed, and its journal says so.
#pragma once

#include <array>
#include <list>
#include <memory>

#include "base/fd.h"
#include "warden/loop.h"
#include "warden/output_sink.h"

namespace moorage::warden {

inline constexpr size_t kMaxLate = 256;

class LateOutput {
 public:
  struct Stream {
    base::Fd fd;  // non-blocking; none: closed
    base::FrameKind kind{};
  };
  struct Source {
    std::array<Stream, 2> streams;
    base::Fd session;                  // of a terminal: closing it ends the session (spawn.h)
    std::unique_ptr<OutputSink> sink;  // after its end(); none: what comes is dropped
  };

  explicit LateOutput(Loop& loop) : loop_(loop), sweep_(loop) {}
  void take(Source source);
  bool empty() const { return entries_.empty(); }  // all is read, and written

 private:
  struct Entry {
    explicit Entry(Loop& loop) : resume(loop) {}
    Source source;
    std::array<std::unique_ptr<Watch>, 2> watches;
    Timer resume;
    bool closed = false;  // all is read
  };
  using Place = std::list<Entry>::iterator;
  void pump(Place entry, size_t stream);
  void pause_or_resume(Place entry);
  void close(Place entry);
  void drop(Place entry);

  Loop& loop_;
  std::list<Entry> entries_;  // oldest first
  std::list<Entry> dropped_;  // until the handler that dropped them has returned
  Timer sweep_;
};

}  // namespace moorage::warden
