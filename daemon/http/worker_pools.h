// The pools for blocking verbs, one per kind of waiting, so that no kind delays the others: `exec`
// may wait for a sandbox to start, `slow` for mounts and syncs, `files` for a workspace to be
// mounted, `fetch` for upstreams, `input` for commands to read their input, `look` briefly for a
// workspace to be measured. `quick` never waits for a workspace's lock. `upkeep` is the daemon's
// own. Every user and every workspace gets a share of each of the others (base/fair_pool.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include "base/fair_pool.h"
#include "base/thread_pool.h"

namespace moorage::daemon {

enum class Lane { quick, exec, slow, files, fetch, input, look, upkeep };

class WorkerPools {
 public:
  // `fetch` has kFetchersEach times as many threads: they wait for the network, and one hanging
  // upstream must not keep the others from being cloned.
  static constexpr size_t kFetchersEach = 4;
  explicit WorkerPools(size_t threads_each, size_t max_queue = 1024);
  // resource_exhausted if the user's queue of that lane is full. Work must not throw. `upkeep`
  // ignores the share.
  void submit(Lane lane, const base::Share& share, std::function<void()> work);
  size_t busy() const { return busy_; }  // accepted and not finished

 private:
  std::atomic<size_t> busy_{0};
  std::array<std::unique_ptr<base::FairPool>, 7> pools_;
  base::ThreadPool upkeep_;
};

}  // namespace moorage::daemon
