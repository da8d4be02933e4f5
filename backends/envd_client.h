// The daemon's side of the envd API (E2B's in-sandbox protocol, ../shared/specs): process.Process
// over HTTP/1.1 with Connect JSON. Blocking; one connection and one deadline per call. Answers are
// untrusted: frames, counts and texts have limits; a broken answer is Error(corrupted), a missing
// one is unknown_outcome once the request was sent. Local extensions, optional headers on Start:
//   Moorage-Journal: 1        descriptors travel with the first byte of the request (SCM_RIGHTS),
//                             in the order journal, kill, join...; output goes to the journal, the
//                             stream ends after the start event, and a command that cannot start is
//                             an `end` frame (exit code 126 or 127), not an error. The journal must
//                             be empty: already_exists means that this exec has already run
//   Moorage-Spool: 1          instead, without descriptors: the journal is a new file of the
//                             warden's directory --spool, named by the tag. The warden holds a
//                             flock on it until all late output is written
//   Moorage-Kill-Fd: 0|1      whether a kill descriptor is among them
//   Moorage-Output-Limit: N   payload bytes kept in the journal; later output is read and dropped
//   Moorage-Journal-Room: N   disk bytes that the journal may use, 0: no limit; the daemon
//   meanwhile
//                             removes its middle. A warden that knows it ignores the output limit
//   Moorage-Tag: TAG          the tag in the body, for moorage-link, which reads no bodies
//   Moorage-User: NAME        user (default), root
// SendInput accepts "offset" (a string, bytes sent before this piece): the warden skips bytes it
// already has, so a retry after a lost answer never doubles input. Its answer {"accepted":"N"} is
// the total so far. SendSignal accepts any signal; "tree": true kills everything it started.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "base/wire/protocol.h"

namespace moorage::backends {

struct TerminalSize {
  uint32_t columns = 80;
  uint32_t rows = 24;
};

struct StartRequest {
  std::string tag;                                 // the exec's id
  std::vector<std::string> argv;                   // searched in PATH of `environment`
  std::map<std::string, std::string> environment;  // complete: nothing is added
  std::string directory = "/workspace";
  std::string user = "user";
  bool input = false;   // false: /dev/null
  bool merged = false;  // standard error goes into standard output, by one pipe
  std::optional<TerminalSize> terminal;
  int64_t timeout_ms = 0;           // 0: none. At expiry everything it started is killed
  uint64_t output_limit_bytes = 0;  // 0: none
  uint64_t journal_room_bytes = 0;  // 0: none; if not 0, the limit is for older wardens
  int journal_fd = -1;              // O_APPEND, borrowed
  int kill_fd = -1;                 // borrowed; -1: the warden kills by subreaper walk
  std::vector<int> join_fds;        // borrowed
};

struct InputTaken {
  uint64_t accepted = 0;           // bytes, from the first
  std::optional<uint64_t> read{};  // of them, by the command; older wardens do not say
};

struct ProcessInfo {
  std::string tag;
  uint32_t pid = 0;  // inside
};

struct WardenInfo {
  base::Protocols protocols;  // no answer means 1: older wardens lack the request
  std::string release;
};

class EnvdClient {
 public:
  explicit EnvdClient(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}

  uint32_t start(const StartRequest& request,
                 std::chrono::milliseconds deadline);  // pid inside; 0: could not start
  // Blocks until the warden has accepted the bytes (the command's pipe gives back-pressure) or the
  // deadline; returns the total accepted. not_found: the exec is over. conflict: input is closed.
  InputTaken send_input(const std::string& tag, uint64_t offset, std::string_view bytes,
                        std::chrono::milliseconds deadline);
  void close_input(const std::string& tag);
  void send_signal(const std::string& tag, int signal);  // to the foreground process group
  void kill_tree(const std::string& tag);                // SIGKILL to all it started, then its end
  void resize(const std::string& tag, const TerminalSize& size);
  std::vector<ProcessInfo> list(
      std::chrono::milliseconds deadline = std::chrono::milliseconds(10'000));
  bool healthy(std::chrono::milliseconds deadline);  // GET /health is 204
  // GET /moorage/protocol: the protocols it speaks. Empty: it does not answer (yet).
  std::optional<WardenInfo> introduce(std::chrono::milliseconds deadline);
  // POST /moorage/network: hands over the warden's end of a line (base/wire/network_line.h).
  // False: a warden of an older release, whose sandbox has no network until it is started again.
  bool set_network_line(int line, std::chrono::milliseconds deadline);
  void shut_down(std::chrono::milliseconds grace);  // TERM, KILL after grace, exit

 private:
  Endpoint endpoint_;
};

}  // namespace moorage::backends
