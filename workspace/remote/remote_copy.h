// The files of a sandbox on another machine, as verbs see them: the copy here is brought up to date
// before it is read, and the machine gets what the API changes. Each call has a deadline; a machine
// that cannot be reached delays nobody for longer.
//
// A change through the API is noted in the sandbox's directory before it is made, and the note goes
// when the machine has the change. One that could not be sent at once is sent later.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fair_pool.h"
#include "state_db/tables/workspaces.h"
#include "workspace/remote/incoming_packs.h"

namespace moorage::workspace {

struct RemoteView {
  bool connected = false;
  std::optional<uint64_t> behind_ms;  // age of the last complete sync; unset: never synced
  std::string overlay;                // there: "root", "user", "none"; empty: not known
  std::vector<std::string> limits;    // that hold there: of "memory", "pids", "cpus"
  std::string network;                // how its rules are held if not here; empty: here
  std::string reason;                 // why it is not connected, or its changes wait here
  uint64_t restored = 0;              // entries that it lost in a pause, and that were sent again
  uint64_t kept_ms = 0;               // its provider was asked to keep it so long; 0: not known
  // The caller of view() adds the time of all of the owner's sandboxes elsewhere in 24 hours, and
  // the hours of those that are allowed; 0: no limit.
  int64_t user_ms = 0;
  uint32_t user_limit_h = 0;
  size_t waiting_packs = 0;  // here, not yet in the workspace's files
  size_t waiting_ends = 0;   // of commands that ended, and wait for those
};

// Throws conflict if a rented machine runs it whose provider holds its network rules: those change
// at its next start only.
void require_held_here(Context& context, const state_db::WorkspaceRow& row);

class RemoteCopy {
 public:
  RemoteCopy(Context& context, IncomingPacks& incoming) : context_(context), incoming_(incoming) {}

  // Fetches and applies what changed there until now, unless it runs here. Returns how old the
  // files here are, in words for the user; empty: current.
  std::string refresh(base::WorkspaceId workspace);
  // Queries the link, for at most a second. Empty: it runs here, or does not run.
  std::optional<RemoteView> view(base::WorkspaceId workspace);

  // One change through the API. While it lives, nothing from the machine is applied.
  class Change {
   public:
    Change() = default;  // the workspace's files are only here
    bool is_remote() const { return running_ != nullptr; }

   private:
    friend class RemoteCopy;
    std::shared_ptr<const LiveSandbox> running_;
    base::KeyedMutex::Guard paused_;
    std::string note_;
  };
  // Call before the change with the absolute paths inside (without links) that it may touch. Throws
  // unavailable if the machine cannot be reached now: nothing may be written then.
  Change begin(base::WorkspaceId workspace, const std::vector<std::string>& paths);
  // Returns once the machine has the files as they are here.
  void finish(Change change, const std::vector<std::string>& paths);
  // Sends what a finish() could not. Call it every second.
  void tick();

 private:
  std::string age(const LiveSandbox& running, const std::string& why);
  void send_later(const LiveSandbox& running);
  void send_noted(const LiveSandbox& running);

  Context& context_;
  IncomingPacks& incoming_;
  std::mutex mutex_;
  std::set<base::SandboxId> sending_;
  base::FairPool senders_{4, 100'000};  // last member: its work uses the others
};

}  // namespace moorage::workspace
