// The copy of the store elsewhere (`replica.directory`), kept by a thread of its own: a round every
// few seconds (replica_writer.h), whose failures are told here and tried again. However slow the
// other disk is, or gone, no verb waits for it and nothing of the store is changed; the copy only
// falls behind, which is said.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "state_db/workspaces.h"
#include "workspace/active.h"
#include "workspace/context.h"
#include "workspace/requests.h"

namespace moorage::workspace {

enum class ReplicaState : uint8_t {
  starting,   // the first copy is being made
  following,  // the last round came to its end
  failing,    // it did not: the reason may pass
  refused     // it cannot, until somebody changes something
};
std::string_view replica_state_name(ReplicaState state);

struct ReplicaStatus {
  std::string directory;
  ReplicaState state = ReplicaState::starting;
  std::optional<int64_t> behind_ms{};  // what is newer than that is not in the copy; none: no copy
  int64_t copied_wall_ms = 0;          // 0: never, since this daemon started
  std::string problem{};               // of the last round; for people
  std::string hint{};
  std::vector<std::string> notes{};  // what the copy cannot have
  uint64_t rounds = 0;
  uint64_t failures = 0;
  uint64_t bytes = 0;  // written since the start
};

class Replica {
 public:
  struct Rules {
    std::string directory;  // empty: there is no copy
    std::chrono::milliseconds interval{20'000};
    bool same_disk = false;
    std::string store_image{};  // the file that the store lies in, if it does
  };
  Replica(Context& context, Active& active, Rules rules);
  ~Replica();  // after stop()
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  bool is_on() const { return !rules_.directory.empty(); }
  void start();
  // False: the other disk does not answer, and the thread still waits for it.
  bool stop(std::chrono::milliseconds patience);

  ReplicaStatus status() const;
  // What `show` and `ls` tell of a workspace; none: there is no copy.
  std::optional<OffHostView> view(base::WorkspaceId id, const std::string& seal) const;

 private:
  // 0 when it rests and all of it is in the copy, however old that is.
  std::optional<int64_t> behind_ms(base::WorkspaceId id, const std::string& seal) const;
  void run();
  void look();  // throws, to stop
  void pause(std::chrono::milliseconds time);

  Context& context_;
  Active& active_;
  const Rules rules_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool ended_ = true;
  ReplicaStatus status_;
  std::optional<int64_t> copied_boot_ms_;
  std::map<base::WorkspaceId, std::string> sealed_;
  std::thread thread_;
};

}  // namespace moorage::workspace
