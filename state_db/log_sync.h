// Makes commits durable, for all waiting threads at once. A commit writes SQLite's log without a
// sync (synchronous=NORMAL: the log stays valid, but a power cut may lose its newest commits); then
// the first waiting thread syncs the log, and the others wait for it. So no commit waits for the
// syncs of earlier ones, and the store's lock is free during a sync. Safe from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "base/os/fd.h"

namespace moorage::state_db {

class LogSync {
 public:
  // The log exists and is durable. `on_failure` is called once, after a failed sync: the state of
  // the disk is unknown then.
  LogSync(const std::string& log_path, std::function<void()> on_failure);

  // Held while SQLite commits; one at a time, under the store's lock. Others may see the commit as
  // soon as this begins. It ends in the log, or is rolled back.
  class Commit {
   public:
    explicit Commit(LogSync& log) : log_(log), number_(++log.begun_) {}
    ~Commit();
    Commit(Commit&&) = delete;
    int64_t number() const { return number_; }

   private:
    LogSync& log_;
    const int64_t number_;
  };
  int64_t newest() const { return begun_; }

  // Returns when that commit and all earlier ones are durable. False: a sync failed.
  bool wait(int64_t number);

 private:
  const Fd log_;
  const std::function<void()> on_failure_;
  std::mutex mutex_;
  std::condition_variable in_log_;
  std::condition_variable synced_;
  std::atomic<int64_t> begun_{0};
  std::atomic<int64_t> durable_{0};  // changed under the mutex, like the rest
  int64_t written_ = 0;
  bool syncing_ = false;
  bool failed_ = false;
};

}  // namespace moorage::state_db
