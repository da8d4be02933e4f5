// Which hosts the commands in running sandboxes reached, were refused or could not reach. Each
// outcome becomes one event, a line for the user who follows the command, and, while a refused
// command runs, the host that blocks it. Reports of an egress are untrusted, so all is bounded.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/net/network_policy.h"
#include "base/net/network_settings.h"
#include "workspace/context/context.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/exec/watcher.h"
#include "workspace/network/blocked.h"
#include "workspace/network/settings.h"

namespace moorage::workspace {

class Sightings {
 public:
  Sightings(Context& context, ExecWatcher& watcher, const NetworkOptions& options)
      : context_(context), watcher_(watcher), options_(options) {}

  // An earlier daemon recorded some: its egress reports them again.
  void recall(const LiveSandbox& sandbox);
  void restart(base::SandboxId sandbox);  // a new egress numbers them from 1
  // `exec` 0: not known. Never throws.
  void record(const LiveSandbox& sandbox, const base::Sighting& sighting, base::ExecId exec);
  void forget(base::SandboxId sandbox);

  // For people: hosts that the command was refused, and the command that allows each. Only grows;
  // kept for some time after the end of the command.
  std::vector<std::string> notices(base::ExecId exec) const;
  std::optional<Blocked> blocked(base::WorkspaceId workspace) const;  // the latest
  void reconsider(base::WorkspaceId workspace, const base::NetworkPolicy& policy);
  void ended(base::ExecId exec);

  static constexpr size_t kMaxNotices = 50;     // of one command
  static constexpr size_t kMaxEvents = 2'000;   // of a sandbox in an hour
  static constexpr size_t kKeptAfterEnd = 64;   // commands of a sandbox
  static constexpr size_t kMaxSerials = 4'096;  // more than an egress keeps

 private:
  struct Command {
    base::SandboxId sandbox;
    base::WorkspaceId workspace;
    std::vector<std::string> notices;
    std::vector<base::Sighting> refused;  // while it runs
    bool over = false;
  };
  struct Recorded {
    // Held until the notice of a sighting is there, too: the end of its command waits for that.
    std::mutex mutex;
    std::set<uint64_t> serials;        // of the present egress
    std::set<std::string> by_earlier;  // by an earlier daemon
    int64_t hour = 0;
    size_t events = 0;  // in this hour
  };
  struct Sandbox {
    std::shared_ptr<Recorded> recorded = std::make_shared<Recorded>();
    std::deque<base::ExecId> ended;
  };
  std::shared_ptr<Recorded> recorded(base::SandboxId sandbox);
  bool may_write(Recorded& recorded, const LiveSandbox& sandbox) const;  // an event
  void note(const LiveSandbox& sandbox, const base::Sighting& sighting, base::ExecId exec);

  Context& context_;
  ExecWatcher& watcher_;
  const NetworkOptions& options_;
  mutable std::mutex mutex_;  // for the next two; held only briefly
  std::map<base::ExecId, Command> commands_;
  std::map<base::SandboxId, Sandbox> sandboxes_;
};

}  // namespace moorage::workspace
