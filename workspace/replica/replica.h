// The copy of the store elsewhere (`replica.directory`), kept by its own thread: a round every few
// seconds (writer.h); failures are reported here and retried. However slow the other disk
// is, even if it is gone, no verb waits for it and the store is not changed; the copy only falls
// behind, and its status says so.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "state_db/tables/workspaces.h"
#include "workspace/context/context.h"
#include "workspace/context/live_sandboxes.h"

namespace moorage::workspace {

enum class ReplicaState : uint8_t {
  starting,   // the first copy is being made
  following,  // the last round succeeded
  failing,    // the last round failed; the reason may pass
  refused     // it cannot run until somebody changes something
};
inline std::string_view replica_state_name(ReplicaState state) {
  constexpr std::string_view kNames[] = {"starting", "following", "failing", "refused"};
  return kNames[static_cast<size_t>(state)];
}

struct ReplicaStatus {
  std::string directory;
  ReplicaState state = ReplicaState::starting;
  std::optional<int64_t> behind_ms{};  // age of the copy; empty: no copy yet
  int64_t copied_wall_ms = 0;          // 0: never since this daemon started
  std::string problem{};               // from the last round; for people
  std::string hint{};
  std::vector<std::string> notes{};  // things that could not be copied
  uint64_t rounds = 0;
  uint64_t failures = 0;
  uint64_t bytes = 0;  // written since the start
};

struct OffHostView {
  std::string state{};                 // a name of ReplicaState
  std::optional<int64_t> behind_ms{};  // age of this workspace in the copy; empty: no copy
};

class Replica {
 public:
  struct Rules {
    std::string directory;  // empty: no replica
    std::chrono::milliseconds interval{20'000};
    bool same_disk = false;
    std::string store_image{};  // the file that contains the store, if any
  };
  Replica(Context& context, Rules rules);
  ~Replica();  // after stop()
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  bool is_on() const { return !rules_.directory.empty(); }
  void start();
  // With a last round, if half of the time is enough for it. False: the other disk does not answer,
  // and the thread is still waiting for it.
  bool stop(std::chrono::milliseconds patience);

  ReplicaStatus status() const;
  // Shown by `show` and `ls` for a workspace; empty: no replica.
  std::optional<OffHostView> view(base::WorkspaceId id, const std::string& seal) const;

 private:
  // 0 if the workspace is stopped and completely in the copy, however old that is.
  std::optional<int64_t> behind_ms(base::WorkspaceId id, const std::string& seal) const;
  void run();
  bool is_finishing() const;
  void check_stopping();  // throws
  void pause(std::chrono::milliseconds time);

  Context& context_;
  const Rules rules_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool finishing_ = false;  // after one more round
  bool stopping_ = false;   // now
  bool ended_ = true;
  ReplicaStatus status_;
  std::optional<int64_t> copied_boot_ms_;
  std::map<base::WorkspaceId, std::string> sealed_;
  std::thread thread_;
};

}  // namespace moorage::workspace
