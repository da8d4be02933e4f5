// A body that one of the daemon's threads writes into a pipe (base/byte_pipe.h, base/byte_spool.h).
#pragma once

#include <memory>
#include <utility>

#include "daemon/http/router.h"

namespace moorage::daemon {

template <typename Pipe>
class PipeSource : public BodySource {
 public:
  explicit PipeSource(std::shared_ptr<Pipe> pipe) : pipe_(std::move(pipe)) {}
  ~PipeSource() override { pipe_->leave(); }
  Step read() override {
    constexpr std::chrono::milliseconds kLookAgain{20};
    auto bytes = pipe_->try_read(kPieceBytes);
    if (!bytes) return {{}, Next::wait, kLookAgain};
    const Next next = bytes->empty() ? Next::end : Next::more;
    return {*std::move(bytes), next, {}};
  }

 private:
  std::shared_ptr<Pipe> pipe_;
};

}  // namespace moorage::daemon
