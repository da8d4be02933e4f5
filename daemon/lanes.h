// The pools that blocking verbs run on, one a kind of waiting, so that one kind never keeps the
// others from answering: `exec` may wait for a sandbox to start, `slow` for mounts and syncs,
// `files` for a workspace to be mounted, `fetch` for upstreams, `input` for commands to read what
// they are sent, `look` shortly for a workspace to be measured. `quick` never waits for the lock of
// a workspace. `upkeep` is the daemon's own. Of each of the others every user and every workspace
// gets a share (base/fair_pool.h).
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

class Lanes {
 public:
  // Of `fetch` there are kFetchersEach times as many: they wait for the network, and one upstream
  // that hangs must not keep the others from being cloned.
  static constexpr size_t kFetchersEach = 4;
  explicit Lanes(size_t threads_each, size_t max_queue = 1024);
  // resource_exhausted when the user's queue of that lane is full. Work must not throw. On `upkeep`
  // the share says nothing.
  void submit(Lane lane, const base::Share& share, std::function<void()> work);
  size_t busy() const { return busy_; }  // accepted and not ended yet

 private:
  std::atomic<size_t> busy_{0};
  std::array<std::unique_ptr<base::FairPool>, 7> pools_;
  base::ThreadPool upkeep_;
};

}  // namespace moorage::daemon
