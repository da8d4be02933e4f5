// The daemon's side of a moorage-link: the requests that its keeper answers itself, besides those
// of the envd API (base/wire/link_config.h). Blocking; one connection and one deadline per call.
// All may be repeated, so an answer that did not come is Error(unavailable), not unknown_outcome.
// What a keeper answers may come from a hostile machine: sizes are limited, texts are escaped.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/wire/link_config.h"

namespace moorage::backends {

inline constexpr size_t kMaxChangedPaths = 10'000;  // of one request

class LinkClient {
 public:
  using Deadline = std::chrono::milliseconds;
  explicit LinkClient(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}

  // Returns once the machine is reached and has base tree and objects. May take minutes.
  void connect(Deadline deadline);
  // Oldest first. The mounts must be attached. Returns once the warden there answers.
  void begin(const std::vector<base::LinkLayer>& layers, Deadline deadline);
  // Returns once all changes made before the call are complete packs in incoming/.
  void sync(Deadline deadline);
  // Absolute paths inside: "/workspace/a". Returns once the machine has them as they are here.
  void changed(const std::vector<std::string>& paths, Deadline deadline);
  // Gives it the journal of a command that an earlier keeper started: its bytes go on there.
  void keep(const std::string& tag, int journal_fd, uint64_t room_bytes, Deadline deadline);
  // Whether more of this command's journal may come. False: it is whole here, or nothing of it is
  // on the machine.
  bool follows(const std::string& tag, Deadline deadline);
  base::LinkStatus status(Deadline deadline);
  // Returns once nothing of the sandbox is left there.
  void destroy(Deadline deadline);
  struct ShutDown {
    std::chrono::milliseconds grace{0};
    bool keep = false;  // the machine is paused then, if possible, instead of ended
  };
  struct Ended {
    bool kept = false;
    std::string why{};  // not kept, although that was wanted
  };
  // Ends the commands there, syncs for the last time, and removes the sandbox there. Without an
  // answer within grace + deadline the last sync may not have come.
  Ended shut_down(const ShutDown& how, Deadline deadline);

 private:
  void request(const std::string& path, const std::string& body, Deadline deadline);
  Endpoint endpoint_;
};

}  // namespace moorage::backends
