#include "daemon/http/worker_pools.h"

namespace moorage::daemon {

namespace {

// At least one for each periodic task of the daemon, so that none waits for another.
constexpr size_t kUpkeepThreads = 16;

}  // namespace

WorkerPools::WorkerPools(size_t threads_each, size_t max_queue)
    : upkeep_(kUpkeepThreads, max_queue) {
  for (auto& pool : pools_) pool = std::make_unique<base::FairPool>(threads_each, max_queue);
  pools_.at(static_cast<size_t>(Lane::fetch)) =
      std::make_unique<base::FairPool>(threads_each * kFetchersEach, max_queue);
}

void WorkerPools::submit(Lane lane, const base::Share& share, std::function<void()> work) {
  busy_ += 1;
  auto counted = [this, work = std::move(work)] {
    work();
    busy_ -= 1;
  };
  try {
    if (lane == Lane::upkeep) return upkeep_.submit(std::move(counted));
    pools_.at(static_cast<size_t>(lane))->submit(share, std::move(counted));
  } catch (...) {
    busy_ -= 1;
    throw;
  }
}

}  // namespace moorage::daemon
