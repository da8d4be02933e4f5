// The daemon's side of the envd API (E2B's in-sandbox protocol, ../shared/specs): process.Process
// over HTTP/1.1 with Connect JSON. One connection a call, blocking, every call with a deadline.
// What comes back is untrusted: frames, counts and texts are bounded; a broken answer is
// Error(corrupted), none is unknown_outcome once the request was sent. Local extensions, optional
// headers on Start:
//   Moorage-Journal: 1        descriptors ride on the first byte of the request (SCM_RIGHTS), in
//   the
//                             order journal, kill, join...; output goes to the journal, the stream
//                             ends after the start event, and a command that cannot be started is
//                             an `end` frame (exit code 126 or 127), not an error. The journal must
//                             be empty: already_exists says that this exec has run before
//   Moorage-Kill-Fd: 0|1      whether a kill descriptor is among them
//   Moorage-Output-Limit: N   payload bytes kept in the journal; later output is read and dropped
//   Moorage-Journal-Room: N   bytes that the journal may take of the disk, 0: none; the daemon takes
//                             its middle out meanwhile. A warden that knows it ignores the limit
//   Moorage-User: NAME        user (default), root
// SendInput takes "offset" (a string, bytes sent before this piece): what the warden has already is
// skipped, so a retry after a lost answer never doubles input. Its answer {"accepted":"N"} counts
// the bytes taken so far. SendSignal takes any signal, and with "tree": true kills all that was
// started.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "base/protocol.h"

namespace moorage::backends {

struct TerminalSize {
  uint32_t columns = 80;
  uint32_t rows = 24;
};

struct StartRequest {
  std::string tag;                                 // the exec's id
  std::vector<std::string> argv;                   // argv[0] is looked up in PATH of `environment`
  std::map<std::string, std::string> environment;  // complete: nothing is added
  std::string directory = "/workspace";
  std::string user = "user";
  bool input = false;  // false: /dev/null
  std::optional<TerminalSize> terminal;
  int64_t timeout_ms = 0;           // 0: none. At expiry everything it started is killed
  uint64_t output_limit_bytes = 0;  // 0: none
  uint64_t journal_room_bytes = 0;  // 0: none; if not 0, the limit is for older wardens
  int journal_fd = -1;              // O_APPEND, borrowed
  int kill_fd = -1;                 // borrowed; -1: the warden kills by subreaper walk
  std::vector<int> join_fds;        // borrowed
};

struct ProcessInfo {
  std::string tag;
  uint32_t pid = 0;  // inside
};

struct WardenInfo {
  base::Protocols protocols;  // without an answer to the question: 1, as before there was one
  std::string release;
};

class EnvdClient {
 public:
  explicit EnvdClient(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}

  uint32_t start(const StartRequest& request,
                 std::chrono::milliseconds deadline);  // pid inside; 0: could not be started
  // Blocks until the warden has taken the bytes (the command's pipe is the back-pressure) or the
  // deadline; returns the total taken. not_found: the exec is over. conflict: its input is closed.
  uint64_t send_input(const std::string& tag, uint64_t offset, std::string_view bytes,
                      std::chrono::milliseconds deadline);
  void close_input(const std::string& tag);
  void send_signal(const std::string& tag, int signal);  // to the foreground process group
  void kill_tree(const std::string& tag);  // SIGKILL to all that the exec started, its end follows
  void resize(const std::string& tag, const TerminalSize& size);
  std::vector<ProcessInfo> list(
      std::chrono::milliseconds deadline = std::chrono::milliseconds(10'000));
  bool healthy(std::chrono::milliseconds deadline);  // GET /health is 204
  // GET /moorage/protocol: what it speaks. Nothing: it does not answer (yet).
  std::optional<WardenInfo> introduce(std::chrono::milliseconds deadline);
  void shut_down(std::chrono::milliseconds grace);  // TERM to all, KILL after grace, warden exits

 private:
  Endpoint endpoint_;
};

}  // namespace moorage::backends
