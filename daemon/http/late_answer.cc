#include "daemon/http/late_answer.h"

namespace moorage::daemon {

class LateAnswer::Source : public BodySource {
 public:
  explicit Source(std::shared_ptr<LateAnswer> answer) : answer_(std::move(answer)) {}
  void start(std::function<void()> wake) override {
    const std::lock_guard lock(answer_->mutex_);
    answer_->wake_ = std::move(wake);
  }
  Step read() override {
    const std::lock_guard lock(answer_->mutex_);
    Step step;
    step.next = answer_->reply_ ? Next::end : Next::wait;
    step.instead = answer_->reply_;
    return step;
  }
  // The wait may outlast a stopping daemon: the client reconnects to the next one.
  bool endless() const override { return true; }

 private:
  std::shared_ptr<LateAnswer> answer_;
};

void LateAnswer::finish(Reply reply) {
  const std::lock_guard lock(mutex_);
  reply_ = std::make_shared<Reply>(std::move(reply));
  if (wake_) wake_();
}

std::unique_ptr<BodySource> LateAnswer::source(std::shared_ptr<LateAnswer> answer) {
  return std::make_unique<Source>(std::move(answer));
}

}  // namespace moorage::daemon
