// Where the output of one command goes: a journal file, or the streams of those who listen.
// A sink that is not ready() takes no more: the command's pipe then fills up and the command waits
// (back-pressure instead of loss). It calls on_ready's task when it takes more again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/journal.h"

namespace moorage::warden {

// How a command ended; the payload of the journal's `end` frame is this as JSON, with the sink's
// "omitted_bytes" (a decimal string). code is -1 unless kind is "exited".
struct ExecEnd {
  std::string kind = "exited";  // exited, signalled, timed_out
  int code = -1;
  int signal = 0;       // that ended the main process, or 0
  std::string error;    // why it could not be started, and what to do; or empty
  std::string failure;  // the same in one word: not_found, not_executable, not_started; or empty
  int64_t user_ms = 0;
  int64_t system_ms = 0;
  int64_t max_rss_bytes = 0;
  int64_t wall_ms = 0;
};

class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void started(uint32_t pid) = 0;
  virtual bool ready() const = 0;
  virtual void write(base::FrameKind kind, std::string_view bytes) = 0;  // only when ready
  virtual void end(const ExecEnd& end) = 0;
  // Whether it takes output also after the end; then close() says that no more comes, and stop()
  // that more may come and is not kept.
  virtual bool keeps_late() const { return false; }
  virtual void close() {}
  virtual void stop() {}
  virtual bool settled() const = 0;  // nothing is held back; before that the sink must not go
  void on_ready(std::function<void()> task) { ready_task_ = std::move(task); }

 protected:
  void tell_ready() {
    if (ready_task_) ready_task_();
  }

 private:
  std::function<void()> ready_task_;
};

}  // namespace moorage::warden
