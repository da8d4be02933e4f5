// One lock per key, held with the operation's name, so that a refusal can name the obstacle: "ws_3
// is busy: start (since 4 s)". Used for workspaces, repositories and layers. Readers may share it;
// it is free again after the last of them.
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

  // Waits up to `patience`, then throws Error(conflict) naming the operation in progress.
  Guard lock(const std::string& key, const std::string& operation,
             std::chrono::milliseconds patience = std::chrono::seconds(30)) {
    return acquire(key, operation, false, patience);
  }
  // The same, shared with other readers.
  Guard share(const std::string& key, const std::string& operation,
              std::chrono::milliseconds patience = std::chrono::seconds(30)) {
    return acquire(key, operation, true, patience);
  }

 private:
  struct Holder {
    std::string operation;  // the first one's, if shared
    std::chrono::steady_clock::time_point since;
    size_t sharing = 0;  // how many; 0: held exclusively
  };
  bool is_free(const std::string& key, bool to_share) const;  // the mutex is held
  Guard acquire(const std::string& key, const std::string& operation, bool to_share,
                std::chrono::milliseconds patience);
  void unlock(const std::string& key);

  std::mutex mutex_;
  std::condition_variable freed_;
  std::map<std::string, Holder> held_;
};

}  // namespace moorage::base
