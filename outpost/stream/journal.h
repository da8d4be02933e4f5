// Follows one journal of the spool (base/wire/journal.h) from an offset on and sends its bytes
// unchanged, until the frame `end` was sent and nobody writes the file any more (late output), or
// the sandbox has ended. Link answers with the offset up to which it has everything; the space
// before it is freed, so the warden has room again.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/os/event_loop.h"
#include "base/os/fd.h"
#include "outpost/stream/session.h"

namespace moorage::outpost {

class JournalChannel : public Channel {
 public:
  struct Options {
    std::string path;
    uint64_t offset = 0;              // the beginning of a frame
    std::function<bool()> is_living;  // the sandbox
    std::function<void()> on_end;     // after the frame `end` was sent
  };
  JournalChannel(base::Loop& loop, Wire wire, const Options& options);

  void data(std::string_view bytes) override;
  void writable() override { send_some(); }

 private:
  void send_some();
  void scan(std::string_view bytes);
  void at_end_of_file();
  void punch(uint64_t up_to);
  bool is_written() const;

  Wire wire_;
  std::function<bool()> is_living_;
  std::function<void()> on_end_;
  Fd file_;
  Fd notice_;  // inotify; none: only the timer
  uint64_t sent_;
  uint64_t punched_ = 0;
  std::string acknowledgement_;  // a part of the next one
  std::string head_;             // of a frame that is not whole
  uint64_t payload_left_ = 0;
  bool end_seen_ = false;
  bool over_ = false;
  std::chrono::milliseconds pause_;
  base::Timer again_;
  std::unique_ptr<base::Watch> watch_;
};

// The same for a spool that may not exist yet: its command was asked for just now.
class AwaitedJournal : public Channel {
 public:
  AwaitedJournal(base::Loop& loop, Wire wire, JournalChannel::Options options);

  void data(std::string_view bytes) override;
  void writable() override;

 private:
  void look();

  base::Loop& loop_;
  Wire wire_;
  JournalChannel::Options options_;
  std::unique_ptr<JournalChannel> found_;
  const int64_t since_ms_;
  std::chrono::milliseconds pause_;
  base::Timer again_;
};

}  // namespace moorage::outpost
