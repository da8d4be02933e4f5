// Sends our standard input to a command, on a thread and a connection of its own, so that neither a
// command that reads nothing nor one that floods its output can hold the other up.
// Every PUT says at which offset its bytes begin and carries at most 1 MiB; only this piece is
// kept, and after a lost answer the daemon is asked how much of it arrived. So the command gets
// each byte once, whatever restarts in between. The destructor ends a PUT that waits for the
// command to read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/fd.h"
#include "cli/backoff.h"
#include "cli/http_client.h"

namespace moorage::cli {

struct StdinPlan {
  std::string socket_path;
  std::string exec;
  int fd = 0;
  uint64_t offset = 0;       // bytes that the command was given before
  bool close_at_end = true;  // our end of file becomes the command's
  // For a raw terminal: Ctrl-P Ctrl-Q leaves instead of being sent.
  std::function<void()> on_detach;
  // The terminal is gone. That is no end of file: the command keeps its input open.
  std::function<void()> on_hangup;
};

class StdinPump {
 public:
  explicit StdinPump(StdinPlan plan);
  ~StdinPump();
  StdinPump(const StdinPump&) = delete;
  StdinPump& operator=(const StdinPump&) = delete;

 private:
  void run();
  std::optional<std::string> read_piece();  // nothing: stop; empty: end of file
  bool wait_for_input();                    // false: stop
  bool is_hung_up() const;
  std::string filter_keys(std::string piece);
  bool deliver(std::string_view piece, bool close);  // false: the command takes no more
  // How much of the piece the daemon now has in all; nothing when the command takes no more.
  std::optional<uint64_t> put(std::string_view piece, bool close);
  std::optional<uint64_t> ask_accepted();

  StdinPlan plan_;
  const bool is_terminal_;
  HttpConnection connection_;
  base::Fd stop_;  // an eventfd
  Backoff backoff_;
  std::unique_ptr<char[]> buffer_;  // a piece; never cleared, which a short command would feel
  bool held_key_ = false;           // Ctrl-P was read, and may begin the way out
  bool detached_ = false;
  std::thread thread_;  // last: starts when all else is there
};

}  // namespace moorage::cli
