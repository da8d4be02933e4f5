// One lock a key, held with the name of the operation, so that a refusal can say what is in the
// way: "ws_3 is busy: start (since 4 s)". Used for workspaces and repositories.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

namespace moorage::base {

class KeyedMutex {
 public:
  class Guard {
   public:
    Guard() = default;
    Guard(KeyedMutex* owner, std::string key) : owner_(owner), key_(std::move(key)) {}
    Guard(Guard&& other) noexcept;
    Guard& operator=(Guard&& other) noexcept;
    ~Guard() { unlock(); }
    void unlock();

   private:
    KeyedMutex* owner_ = nullptr;
    std::string key_;
  };

  // Waits up to `patience`, then throws Error(conflict) that names the operation in progress.
  Guard lock(const std::string& key, const std::string& operation,
             std::chrono::milliseconds patience = std::chrono::seconds(30));

 private:
  struct Holder {
    std::string operation;
    std::chrono::steady_clock::time_point since;
  };
  void unlock(const std::string& key);

  std::mutex mutex_;
  std::condition_variable freed_;
  std::map<std::string, Holder> held_;
};

}  // namespace moorage::base
