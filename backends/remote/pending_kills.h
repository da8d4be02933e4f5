// Kills of commands on other machines: asked for once, repeated until the warden there has answered
// or the sandbox is gone, because the link may be down just then. Never blocks its caller.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "base/thread_pool.h"

namespace moorage::backends {

class PendingKills {
 public:
  // Kills all that command `tag` of this sandbox started. Throws: try again. Blocks for seconds at
  // most.
  using Kill = std::function<void(const std::string& sandbox, const std::string& tag)>;

  explicit PendingKills(Kill kill);
  ~PendingKills();
  PendingKills(PendingKills&&) = delete;

  void add(const std::string& sandbox, const std::string& tag);
  void forget(const std::string& sandbox);
  size_t count();  // not yet answered

 private:
  using Key = std::pair<std::string, std::string>;  // sandbox, tag
  struct Try {
    std::chrono::steady_clock::time_point at;
    std::chrono::milliseconds pause;
  };
  void run();
  void attempt(const Key& key);

  const Kill kill_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Try> tries_;
  std::set<std::string> busy_;  // sandboxes with a try under way: one at a time
  bool stopping_ = false;
  base::ThreadPool pool_;
  std::thread thread_;
};

}  // namespace moorage::backends
