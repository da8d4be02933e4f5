// Holds workspaces below their disk limit where the kernel does not (disk_quota.h), and knows for
// uploads what each has taken. One thread looks at those that run and have written since the last
// look (written_bytes.h), by a walk that takes a bounded share of the time; the nearer the limit,
// the sooner the next look. Who goes over it has its commands ended, category disk_quota. The next
// ones may run, so that an agent can remove files, and are ended as soon as it takes yet more; what
// its commands left running goes with the sandbox.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "state_db/workspaces.h"
#include "workspace/active.h"
#include "workspace/context.h"
#include "workspace/disk_quota.h"
#include "workspace/exec_watcher.h"

namespace moorage::workspace {

QuotaLimit limit_of(const state_db::WorkspaceRow& row);

class QuotaWatch {
 public:
  using Stop = std::function<void(base::WorkspaceId, const std::string& reason)>;
  QuotaWatch(Context& context, Active& active, ExecWatcher& watcher, Stop stop)
      : context_(context), active_(active), watcher_(watcher), stop_(std::move(stop)) {}

  void look();  // about once a second, by one thread
  // Throws resource_exhausted when the workspace may not take so many bytes and one file more. What
  // it takes then counts, until it is measured again.
  void require_room(const state_db::WorkspaceRow& row, uint64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  struct Seen {
    QuotaUse use;
    uint64_t written_bytes = 0;
    Clock::time_point next{};
    bool uploaded = false;         // since it was measured
    std::optional<QuotaUse> over;  // the least that it took since it was over the limit
  };
  std::optional<QuotaUse> measure(const state_db::WorkspaceRow& row);
  void look_at(const Running& running);
  void measure_rested(base::WorkspaceId id, const QuotaUse& counted);
  void judge(const state_db::WorkspaceRow& row, const Running& running, Seen& seen);

  Context& context_;
  Active& active_;
  ExecWatcher& watcher_;
  const Stop stop_;
  std::mutex mutex_;
  std::map<base::WorkspaceId, Seen> seen_;
};

}  // namespace moorage::workspace
