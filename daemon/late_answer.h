// The answer of a verb that waits without a thread (workspace/waiters.h): the connection sleeps
// until it is there. The verb goes on when the client leaves.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "daemon/exchange.h"

namespace moorage::daemon {

class LateAnswer {
 public:
  void finish(Reply reply);  // once, from any thread
  // Reads as the whole answer once it is there. One source an answer.
  static std::unique_ptr<BodySource> source(std::shared_ptr<LateAnswer> answer);

 private:
  class Source;
  std::mutex mutex_;
  std::shared_ptr<Reply> reply_;
  std::function<void()> wake_;
};

}  // namespace moorage::daemon
