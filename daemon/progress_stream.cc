#include "daemon/progress_stream.h"

#include <mutex>

#include "daemon/json_views.h"

namespace moorage::daemon {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kBetweenLines{100};

// Shared by the verb and the stream, whichever lives longer. Only the newest progress is held, so a
// verb that reports a million files costs one line.
class Board {
 public:
  void post(std::string line) {
    const std::lock_guard lock(mutex_);
    newest_ = std::move(line);
    if (wake_) wake_();
  }
  void finish(std::string line) {
    const std::lock_guard lock(mutex_);
    last_ = std::move(line);
    if (wake_) wake_();
  }
  void set_wake(std::function<void()> wake) {
    const std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }
  BodySource::Step read() {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (!last_.empty()) return {std::exchange(newest_, {}) + last_, BodySource::Next::end, {}};
    if (newest_.empty()) return {{}, BodySource::Next::wait, {}};
    const auto due = shown_at_ + kBetweenLines;
    if (now < due) {
      const auto rest = std::chrono::ceil<milliseconds>(due - now);
      return {{}, BodySource::Next::wait, rest};
    }
    shown_at_ = now;
    return {std::exchange(newest_, {}), BodySource::Next::more, {}};
  }

 private:
  std::mutex mutex_;
  std::string newest_;
  std::string last_;
  Clock::time_point shown_at_;
  std::function<void()> wake_;
};

std::string last_line(const Reply& reply) {
  const std::string body = reply.body.empty() ? "{}" : reply.body;
  return (reply.status < 400 ? "{\"result\":" : "{\"error\":") + body + "}\n";
}

class ProgressSource : public BodySource {
 public:
  ProgressSource(Lanes& lanes, Lane lane, std::function<Reply(const workspace::Progress&)> verb)
      : lanes_(lanes), lane_(lane), verb_(std::move(verb)) {}

  void start(std::function<void()> wake) override {
    board_->set_wake(std::move(wake));
    lanes_.submit(lane_, [board = board_, verb = std::move(verb_)] {
      const workspace::Progress progress = [&](const std::string& phase, int percent,
                                               const std::string& text) {
        board->post(progress_json(phase, percent, text) + "\n");
      };
      board->finish(last_line(verb(progress)));
    });
  }
  Step read() override { return board_->read(); }

 private:
  Lanes& lanes_;
  Lane lane_;
  std::function<Reply(const workspace::Progress&)> verb_;
  std::shared_ptr<Board> board_ = std::make_shared<Board>();
};

}  // namespace

std::unique_ptr<BodySource> stream_progress(Lanes& lanes, Lane lane,
                                            std::function<Reply(const workspace::Progress&)> verb) {
  return std::make_unique<ProgressSource>(lanes, lane, std::move(verb));
}

}  // namespace moorage::daemon
