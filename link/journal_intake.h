// The journals of running commands: bytes of the spool there are appended to the journal here
// (base/wire/journal.h), by whole frames, from the size that it has. So after any interruption the
// same bytes continue at the same place, and the file itself is the only memory. The frame `end`,
// and whatever follows it, waits until a sync that began after it has arrived here.
//
// The bytes are hostile: a frame with a wrong head, offset or checksum is never appended, and a
// command whose spool sends one gets no more of it. A journal takes no more of the disk than the
// room that the daemon gave it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/os/event_loop.h"
#include "base/os/fd.h"
#include "link/stream.h"

namespace moorage::link {

struct JournalFile {
  std::string tag;          // "ex_5"
  base::Fd fd;              // O_APPEND
  uint64_t room_bytes = 0;  // 0: no limit
};

inline constexpr uint64_t kRoomSlackBytes = 8 << 20;

// What the journals need of the worker.
class JournalHost {
 public:
  virtual ~JournalHost() = default;
  // Calls `done` when a sync that begins after this call is on disk here. If the stream ends first,
  // never: the journal asks again.
  virtual void sync_for_end(std::function<void()> done) = 0;
  // Everything of it is here; it may be closed.
  virtual void journal_finished(const std::string& tag) = 0;
  virtual void journal_failed(const std::string& tag, const Error& reason) = 0;
};

class Journal : public ChannelUser, public std::enable_shared_from_this<Journal> {
 public:
  Journal(base::Loop& loop, JournalHost& host, JournalFile file);

  // Asks for the bytes after those that are here, unless it does so already on this stream.
  // `expected`: the request for its command goes out just now.
  void follow(Stream& stream, bool expected = false);
  void leave();   // nobody wants more of it
  void detach();  // the stream is about to be destroyed
  const std::string& tag() const { return file_.tag; }
  bool running() const { return !ended_here_; }  // as far as the journal here says

  void on_data(std::string_view bytes) override;
  void on_end() override;
  void on_over(const Error& reason) override;

 private:
  void take_frames();
  void append(std::string_view frames);
  void hold_end();
  void retry();
  void finish_if_done();
  bool has_room();
  void give_back();
  void fail(const Error& error);

  base::Loop& loop_;
  JournalHost& host_;
  JournalFile file_;
  uint64_t size_ = 0;    // whole frames here
  uint64_t output_ = 0;  // bytes of output in them, and dropped
  Stream* stream_ = nullptr;
  uint32_t channel_ = 0;
  std::string partial_;       // bytes that are not in the file: part of a frame, or from `end` on
  size_t unconsumed_ = 0;     // received, not yet given back as credit
  bool ended_here_ = false;   // the file has the frame `end`
  bool end_seen_ = false;     // it came in this stream, or before
  bool released_ = false;     // a sync after it is here
  bool spool_ended_ = false;  // no more bytes will come
  unsigned missing_ = 0;      // times that the spool was not found
  base::Timer later_;
};

// Of the one command that runs: the sandbox there does not say which of several connects.
// 0: none runs, or several do (base/wire/command_mark.h).
uint32_t mark_of_running(const std::map<std::string, std::shared_ptr<Journal>>& journals);
bool any_running(const std::map<std::string, std::shared_ptr<Journal>>& journals);

}  // namespace moorage::link
