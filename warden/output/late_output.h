// Output of processes that outlive their command. It is read as long as a process holds the pipe or
// terminal, so that a full pipe blocks no daemon and SIGPIPE kills none, and written into the
// command's journal after its end. By then the command's caller has its answer.
//
// Recorded are the kMaxLate commands that ended last. With one more, the oldest one's journal gets
// the bytes now in the pipes and a `limit` frame with the offset where it stops, and is closed; its
// output is still read but discarded, as for commands without a journal. Rejected: closing the
// pipes (SIGPIPE would kill a server because of unrelated commands) and leaving them unread (the
// server would block). Only when kMaxDrained more commands leave processes that hold their output
// are the oldest one's pipes closed: descriptors are limited.
#pragma once

#include <array>
#include <list>
#include <memory>

#include "base/os/fd.h"
#include "warden/io/loop.h"
#include "warden/output/output_sink.h"

namespace moorage::warden {

inline constexpr size_t kMaxLate = 256;
inline constexpr size_t kMaxDrained = 512;

class LateOutput {
 public:
  struct Stream {
    Fd fd;  // non-blocking; none: closed
    base::FrameKind kind{};
  };
  struct Source {
    std::array<Stream, 2> streams;
    Fd session;                        // of a terminal: closing it ends the session (spawn.h)
    std::unique_ptr<OutputSink> sink;  // after its end(); none: output is discarded
  };

  explicit LateOutput(Loop& loop) : loop_(loop), sweep_(loop) {}
  void take(Source source);
  bool empty() const;  // all recorded output is read and written

 private:
  struct Entry {
    explicit Entry(Loop& loop) : resume(loop) {}
    Source source;
    std::array<std::unique_ptr<Watch>, 2> watches;
    Timer resume;
    bool drained = false;  // output is discarded; a sink only has to write its held bytes
    bool closed = false;   // everything is read
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
  std::list<Entry> dropped_;   // until the handler that dropped them returns
  Timer sweep_;
};

}  // namespace moorage::warden
