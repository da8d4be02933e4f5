// Output of processes that outlive their command: read for as long as somebody holds the pipe or
// terminal, so that a daemon is neither blocked by a full pipe nor killed by SIGPIPE, and written
// into the command's journal behind its end. Whoever waits for the command has its answer by then.
//
// That of the kMaxLate commands that ended last is recorded. With one more the oldest one's journal
// gets what is in the pipes now and a `limit` frame, which says at which offset it stops, and is
// closed; its output is read on and thrown away, as is that of commands without a journal.
// Rejected: closing the pipes (SIGPIPE ends a server because of commands that it knows nothing
// about), and leaving them unread (the server waits for ever). Only where kMaxDrained more commands
// left something that holds their output are the oldest one's pipes closed: descriptors have an
// end.
#pragma once

#include <array>
#include <list>
#include <memory>

#include "base/fd.h"
#include "warden/loop.h"
#include "warden/output_sink.h"

namespace moorage::warden {

inline constexpr size_t kMaxLate = 256;
inline constexpr size_t kMaxDrained = 512;

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
  bool empty() const;  // all that is recorded is read, and written

 private:
  struct Entry {
    explicit Entry(Loop& loop) : resume(loop) {}
    Source source;
    std::array<std::unique_ptr<Watch>, 2> watches;
    Timer resume;
    bool drained = false;  // what comes is thrown away; a sink only has to write what it holds
    bool closed = false;   // all is read
  };
  using Place = std::list<Entry>::iterator;
  void pump(Place entry, size_t stream);
  void pause_or_resume(Place entry);
  void stop_recording(Place entry);
  void keep_few_drained();
  void close(Place entry);
  void drop(Place entry);

  Loop& loop_;
  std::list<Entry> recorded_;  // oldest first
  std::list<Entry> drained_;   // the same
  std::list<Entry> dropped_;   // until the handler that dropped them has returned
  Timer sweep_;
};

}  // namespace moorage::warden
