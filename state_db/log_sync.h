// Makes commits durable, for all who wait at once. A commit writes SQLite's log without a sync
// (synchronous=NORMAL: the log stays whole, its newest commits may be lost in a power cut); then
// whoever waits for one has the log synced, or waits for somebody who does so for both. So no
// commit stands behind the syncs of those before it, and the store's lock is free meanwhile.
// Safe from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "base/fd.h"

namespace moorage::state_db {

class LogSync {
 public:
  // The log exists, and all that is in it is durable. `on_failure` is called once, when a sync has
  // failed: then nobody knows what is on the disk.
  LogSync(const std::string& log_path, std::function<void()> on_failure);

  // While SQLite commits; one at a time, under the store's lock. Others may see the commit from the
  // beginning on. It ends in the log, or rolled back.
  class Commit {
   public:
    explicit Commit(LogSync& log) : log_(log), number_(++log.begun_) {}
    ~Commit();
    Commit(const Commit&) = delete;
    Commit& operator=(const Commit&) = delete;
    int64_t number() const { return number_; }

   private:
    LogSync& log_;
    const int64_t number_;
  };
  int64_t newest() const { return begun_; }

  // Returns when that commit and all before it are durable. False: a sync has failed.
  bool wait(int64_t number);

 private:
  const base::Fd log_;
  const std::function<void()> on_failure_;
  std::mutex mutex_;
  std::condition_variable in_log_;
  std::condition_variable synced_;
  std::atomic<int64_t> begun_{0};
  std::atomic<int64_t> durable_{0};  // changed under the mutex, as the rest
  int64_t written_ = 0;
  bool syncing_ = false;
  bool failed_ = false;
};

}  // namespace moorage::state_db
