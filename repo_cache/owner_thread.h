// Threads that create files as somebody else. The file-system ids of Linux are per thread
// (setfsuid(2)), so files are born with their owner and no chown follows. The capabilities that the
// change of ids drops are taken back: such a thread still reads the store, which only root may
// enter. Its umask is 022 and its own (unshare(CLONE_FS)).
#pragma once

#include <cstdint>
#include <functional>

namespace moorage::repo_cache {

// Runs work(0) ... work(threads - 1), each in a thread of its own whose new files belong to id:id,
// and waits for all. Rethrows the first exception; the others' work must then end by itself.
void run_as_owner(uint32_t id, unsigned threads, const std::function<void(unsigned)>& work);

}  // namespace moorage::repo_cache
