// Standard input of one command, on its way into a pipe or PTY. Bytes are accepted up to
// kMaxInputBytes ahead of the command, and a piece is answered when the pipe has accepted all of
// it, so the sender follows the command's pace. An offset (bytes sent before this piece) makes
// retries harmless: bytes already received are skipped. When the command stops reading or ends,
// every waiting sender gets an answer at once.
// A sender also learns how much the command has read, as what it did not read belongs to others.
// So the end of the input, which closes the pipe, waits until the pipe is empty.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/os/fd.h"
#include "warden/io/loop.h"

namespace moorage::warden {

inline constexpr size_t kMaxInputBytes = 1 << 20;

enum class InputFate { taken, closed, over };  // over: the command has ended

class InputQueue {
 public:
  using Reply = std::function<void(InputFate fate, uint64_t accepted, uint64_t read)>;

  InputQueue(Loop& loop, Fd write_end, bool terminal);

  // Throws: conflict (offset leaves a gap), resource_exhausted (too much at once).
  void offer(std::optional<uint64_t> offset, std::string_view bytes, Reply reply);
  // A PTY gets ^D instead and stays open. Again for some seconds, unless more input comes: a shell
  // that starts to edit its line just then reads a ^D that waits already as a NUL.
  void close_when_written();
  void command_ended();
  uint64_t read_bytes() const;  // by the command; of a PTY, accepted ones

 private:
  struct Waiter {
    uint64_t until;  // answered when this many bytes are written
    Reply reply;
  };
  void write_some();
  void answer(InputFate fate);
  void shut(InputFate fate);
  void drop_pipe();
  void close_when_read();
  void repeat_end();
  uint64_t unread() const;

  Loop& loop_;
  Fd fd_;
  std::unique_ptr<Watch> watch_;
  Timer verdict_;
  Timer closer_;  // of a pipe; of a PTY, for the next ^D
  bool terminal_;
  bool closing_ = false;
  InputFate fate_ = InputFate::taken;
  std::string bytes_;
  size_t head_ = 0;  // bytes_ before it are written
  uint64_t received_ = 0;
  uint64_t written_ = 0;
  uint64_t left_ = 0;         // in the pipe when it was dropped
  uint64_t last_unread_ = 0;  // closing: as of the last check
  std::chrono::milliseconds check_pause_{1};
  int ends_left_ = 0;
  std::list<Waiter> waiters_;
};

}  // namespace moorage::warden
