#include "state_db/log_sync.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/os/files.h"

namespace moorage::state_db {

LogSync::LogSync(const std::string& log_path, std::function<void()> on_failure)
    : log_(base::open_file(log_path, O_RDONLY)), on_failure_(std::move(on_failure)) {}

LogSync::Commit::~Commit() {
  const std::lock_guard lock(log_.mutex_);
  log_.written_ = number_;
  log_.in_log_.notify_all();
}

bool LogSync::wait(int64_t number) {
  if (durable_ >= number) return true;
  std::unique_lock lock(mutex_);
  in_log_.wait(lock, [&] { return written_ >= number; });
  while (durable_ < number && !failed_) {
    if (syncing_) {
      synced_.wait(lock);
      continue;
    }
    const int64_t target = written_;
    syncing_ = true;
    lock.unlock();
    const bool synced = fdatasync(log_.get()) == 0;
    if (!synced) on_failure_();
    lock.lock();
    syncing_ = false;
    if (synced) durable_ = target;
    failed_ = !synced;
    synced_.notify_all();
  }
  return durable_ >= number;
}

}  // namespace moorage::state_db
