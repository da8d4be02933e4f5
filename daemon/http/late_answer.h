// The answer of a verb that waits without a thread (workspace/context/waiters.h): the connection
// sleeps until it exists. The verb continues if the client leaves.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "daemon/http/exchange.h"

namespace moorage::daemon {

class LateAnswer {
 public:
  void finish(Reply reply);  // once, from any thread
  // Reads as the whole answer once it exists. One source per answer.
  static std::unique_ptr<BodySource> source(std::shared_ptr<LateAnswer> answer);

 private:
  class Source;
  std::mutex mutex_;
  std::shared_ptr<Reply> reply_;
  std::function<void()> wake_;
};

}  // namespace moorage::daemon
