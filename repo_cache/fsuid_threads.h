// Threads that create files as another user. Linux has file-system ids per thread (setfsuid(2)), so
// files are created with their owner and need no chown. The thread regains the capabilities lost by
// the change of ids, as it must still read the store, which only root may enter. It has its own
// umask, 022 (unshare(CLONE_FS)).
#pragma once

#include <cstdint>
#include <functional>

namespace moorage::repo_cache {

// Runs work(0) ... work(threads - 1), each in a thread of its own whose new files belong to id:id,
// and waits for all. Rethrows the first exception; the other threads must then end by themselves.
void run_as_owner(uint32_t id, unsigned threads, const std::function<void(unsigned)>& work);

}  // namespace moorage::repo_cache
