// Sends our standard input to a command, on a thread and a connection of its own, so that input and
// output never block each other. Every PUT names the offset of its first byte and carries at most 1
// MiB. Only this piece is kept; after a lost answer the daemon reports how much of it arrived. So
// the command gets each byte once, across restarts. The destructor ends a PUT that waits for the
// command to read.
// A shared input keeps what the command does not read (shared_input.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/os/fd.h"
#include "cli/client/backoff.h"
#include "cli/client/http_client.h"
#include "cli/stream/shared_input.h"

namespace moorage::cli {

struct StdinPlan {
  std::string socket_path;
  std::string exec;
  int fd = 0;
  uint64_t offset = 0;       // bytes that the command already received
  bool close_at_end = true;  // forward our end of file
  bool share = false;  // leave to others what the command does not read, where that is possible
  // For a raw terminal: Ctrl-P Ctrl-Q detaches and is not sent.
  std::function<void()> on_detach;
  // The terminal was closed. The command keeps its input open.
  std::function<void()> on_hangup;
};

class StdinPump {
 public:
  explicit StdinPump(StdinPlan plan);
  ~StdinPump();
  StdinPump(StdinPump&&) = delete;

  // The command has ended; how much it had read, if that is known. Nothing is sent any more.
  void settle(std::optional<uint64_t> read);
  // The command runs on without us and keeps all that was sent.
  void leave();

 private:
  void run();
  void forward();
  void forward_shared();
  bool wait_for_reading();  // false: stop
  void stop();
  std::optional<std::string> read_piece();  // nothing: stop; empty: end of file
  bool wait_for_input();                    // false: stop
  bool is_hung_up() const;
  std::string filter_keys(const std::string& piece);
  bool deliver(std::string_view piece, bool close);  // false: the command accepts no more
  // How much of the piece the daemon has; nothing when the command accepts no more.
  std::optional<uint64_t> put(std::string_view piece, bool close);
  std::optional<uint64_t> ask_accepted();

  StdinPlan plan_;
  const bool is_terminal_;
  HttpConnection connection_;
  Fd stop_;  // an eventfd
  Backoff backoff_;
  std::unique_ptr<char[]> buffer_;  // a piece; not cleared, which would slow down short commands
  bool held_key_ = false;           // Ctrl-P was read and may start a detach
  bool detached_ = false;
  std::optional<SharedInput> shared_;
  uint64_t sent_ = 0;   // as far as the command may have it
  uint64_t read_ = 0;   // by the command, as far as it is known
  int pause_ms_ = 0;    // before the next question about that
  std::thread thread_;  // last: uses the other members
};

}  // namespace moorage::cli
