#include "daemon/http/progress_stream.h"

#include <boost/json.hpp>
#include <mutex>

#include "base/utf8.h"

namespace moorage::daemon {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kBetweenLines{100};

// Shared by the verb and the stream, whichever lives longer. Holds only the newest progress, so a
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

std::string progress_line(const std::string& phase, int percent, const std::string& text) {
  const boost::json::object object{
      {"progress", {{"phase", phase}, {"percent", percent}, {"text", base::lossy_utf8(text)}}}};
  return boost::json::serialize(object) + "\n";
}

std::string last_line(const Reply& reply) {
  const std::string body = reply.body.empty() ? "{}" : reply.body;
  return (reply.status < 400 ? "{\"result\":" : "{\"error\":") + body + "}\n";
}

using Begin = std::function<void(const workspace::Progress&, const Done&)>;

class ProgressSource : public BodySource {
 public:
  explicit ProgressSource(Begin begin) : begin_(std::move(begin)) {}

  void start(std::function<void()> wake) override {
    board_->set_wake(std::move(wake));
    const auto progress = [board = board_](const std::string& phase, int percent,
                                           const std::string& text) {
      board->post(progress_line(phase, percent, text));
    };
    begin_(progress, [board = board_](const Reply& reply) { board->finish(last_line(reply)); });
  }
  Step read() override { return board_->read(); }

 private:
  Begin begin_;
  std::shared_ptr<Board> board_ = std::make_shared<Board>();
};

}  // namespace

std::unique_ptr<BodySource> stream_progress(Begin begin) {
  return std::make_unique<ProgressSource>(std::move(begin));
}

}  // namespace moorage::daemon
