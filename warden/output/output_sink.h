// The destination of one command's output: a journal file, or the streams of listeners. A sink that
// is not ready() accepts no more: the command's pipe fills up and the command waits (back-pressure
// instead of loss). It calls on_ready's task when it accepts more again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/wire/journal.h"

namespace moorage::warden {

// How a command ended; as JSON, with the sink's "omitted_bytes" (a decimal string), it is the
// payload of the journal's `end` frame. code is -1 unless kind is "exited".
struct ExecEnd {
  std::string kind = "exited";  // exited, signalled, timed_out
  int code = -1;
  int signal = 0;       // that ended the main process, or 0
  std::string error;    // why it could not start, and what to do; or empty
  std::string failure;  // the same in a word: not_found, not_executable, not_started; or empty
  int64_t user_ms = 0;
  int64_t system_ms = 0;
  int64_t max_rss_bytes = 0;
  int64_t wall_ms = 0;
  std::optional<uint64_t> input_read{};  // bytes of a pipe that the command read
};

class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void started(uint32_t pid, bool merged) = 0;
  virtual bool ready() const = 0;
  virtual void write(base::FrameKind kind, std::string_view bytes) = 0;  // only when ready
  virtual void end(const ExecEnd& end) = 0;
  // Whether it accepts output after the end; then close() means that no more comes, and stop() that
  // later output is not kept.
  virtual bool keeps_late() const { return false; }
  virtual void close() {}
  virtual void stop() {}
  virtual bool settled() const = 0;  // everything is written; until then keep the sink
  void on_ready(std::function<void()> task) { ready_task_ = std::move(task); }

 protected:
  void notify_ready() {
    if (ready_task_) ready_task_();
  }

 private:
  std::function<void()> ready_task_;
};

}  // namespace moorage::warden
