// Standard input of one command, on its way into a pipe or PTY. Bytes are accepted up to
// kMaxInputBytes ahead of the command, and a piece is answered when the pipe has accepted all of
// it, so the sender follows the command's pace. An offset (bytes sent before this piece) makes
// retries harmless: bytes already received are skipped. When the command stops reading or ends,
// every waiting sender gets an answer at once.
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
  using Reply = std::function<void(InputFate fate, uint64_t accepted)>;

  InputQueue(Loop& loop, Fd write_end, bool terminal);

  // Throws: conflict (offset leaves a gap), resource_exhausted (too much at once).
  void offer(std::optional<uint64_t> offset, std::string_view bytes, Reply reply);
  void close_when_written();  // a PTY gets ^D instead and stays open
  void command_ended();

 private:
  struct Waiter {
    uint64_t until;  // answered when this many bytes are written
    Reply reply;
  };
  void write_some();
  void answer(InputFate fate);
  void shut(InputFate fate);

  Loop& loop_;
  Fd fd_;
  std::unique_ptr<Watch> watch_;
  Timer verdict_;
  bool terminal_;
  bool closing_ = false;
  InputFate fate_ = InputFate::taken;
  std::string bytes_;
  size_t head_ = 0;  // bytes_ before it are written
  uint64_t received_ = 0;
  uint64_t written_ = 0;
  std::list<Waiter> waiters_;
};

}  // namespace moorage::warden
