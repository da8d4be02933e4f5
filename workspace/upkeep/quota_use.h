// What the disk watcher (quota_watch.h) counts with.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/cgroups/exec_group.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/os/files.h"
#include "layers/quota/disk_quota.h"
#include "workspace/context/live_sandboxes.h"

namespace moorage::workspace {

// What an agent writes while it runs `rm`: a shell's history, a moved directory's index.
inline constexpr uint64_t kSlackBytes = 256 << 10;
inline constexpr uint64_t kSlackFiles = 64;

uint64_t minus(uint64_t from, uint64_t what);  // at least 0
layers::QuotaUse minus(const layers::QuotaUse& use, const layers::QuotaUse& less);
layers::QuotaUse plus(const layers::QuotaUse& use, const layers::QuotaUse& more);
bool is_over(const layers::QuotaUse& use, const layers::QuotaLimit& limit);
// By more than the slack.
bool has_grown(const layers::QuotaUse& now, const layers::QuotaUse& before);
// 1: the limit is reached.
double fullness(const layers::QuotaUse& use, const layers::QuotaLimit& limit);
std::string text_of(const layers::QuotaUse& use, const layers::QuotaLimit& limit);

// Freezes the writers while its result lives.
using Still = std::function<std::shared_ptr<void>()>;

// Counts a layer under writers. A short walk comes first. If it is incomplete, or fails because
// directories move, a longer one follows while the writers are frozen. Incomplete: it cannot be
// counted; the result is a lower bound. Empty: it is unreadable or gone. Without `still` nobody
// writes, and one walk is enough.
std::optional<base::Usage> usage_of_written(const std::string& path, const Still& still);

// How much free space the store's file system has lost and gained, sampled so often that the two
// hide little of each other. It includes everything that takes space, by written pages or without
// (fallocate, empty files), but not who took it. One statfs per sample.
class SpaceMoves {
 public:
  struct Sums {  // of all changes between samples, since the first
    layers::QuotaUse lost{0, 0};
    layers::QuotaUse gained{0, 0};
  };
  explicit SpaceMoves(std::string path) : path_(std::move(path)) {}
  Sums look();

 private:
  const std::string path_;
  std::mutex mutex_;
  std::optional<base::Space> last_;
  Sums sums_;
};

// Frozen layers that took too long to count, and when to retry each: the host may have been busy.
// Its owner locks it.
class CountlessLayers {
 public:
  explicit CountlessLayers(const base::Clock& clock) : clock_(clock) {}
  bool has(base::LayerId layer) const { return again_boot_ms_.contains(layer); }
  bool is_due(base::LayerId layer) const;  // also true before the first attempt
  void note(base::LayerId layer, bool counted);

 private:
  const base::Clock& clock_;
  std::map<base::LayerId, int64_t> again_boot_ms_;
};

// Work done by the commands of a sandbox, as the kernel counts it: dirtied pages of files
// (base/os/written_bytes.h), and processor time, which shows the ones that only slept.
struct SandboxWrites {
  struct Done {
    uint64_t bytes = 0;
    uint64_t cpu_usec = 0;
  };
  uint64_t all = 0;                        // bytes, by the sandbox since it began
  uint64_t ended = 0;                      // part of it by ended processes
  uint64_t cpu_usec = 0;                   // of the sandbox
  std::map<base::ExecId, Done> by_exec{};  // only execs with processes
};

SandboxWrites writes_in(const LiveSandbox& running);
uint64_t bytes_written_in(const LiveSandbox& running);  // only `all`, which is quicker

// Freezes the processes of these commands while it lives.
class FrozenExecs {
 public:
  FrozenExecs(const LiveSandbox& running, const SandboxWrites& writes);
  ~FrozenExecs();
  FrozenExecs(const FrozenExecs&) = delete;
  FrozenExecs& operator=(const FrozenExecs&) = delete;

 private:
  std::vector<std::unique_ptr<backends::ExecGroup>> groups_;
};

}  // namespace moorage::workspace
