#include "daemon/lanes.h"

namespace moorage::daemon {

namespace {

// One for each thing that the daemon repeats: none waits for another.
constexpr size_t kUpkeepThreads = 6;

}  // namespace

Lanes::Lanes(size_t threads_each, size_t max_queue) {
  for (auto& pool : pools_) pool = std::make_unique<base::ThreadPool>(threads_each, max_queue);
  pools_.at(static_cast<size_t>(Lane::fetch)) =
      std::make_unique<base::ThreadPool>(threads_each * kFetchersEach, max_queue);
  pools_.at(static_cast<size_t>(Lane::upkeep)) =
      std::make_unique<base::ThreadPool>(kUpkeepThreads, max_queue);
}

void Lanes::submit(Lane lane, std::function<void()> work) {
  busy_ += 1;
  try {
    pools_.at(static_cast<size_t>(lane))->submit([this, work = std::move(work)] {
      work();
      busy_ -= 1;
    });
  } catch (...) {
    busy_ -= 1;
    throw;
  }
}

}  // namespace moorage::daemon
