#include "cli/stream/event_follower.h"

#include "cli/client/backoff.h"

namespace moorage::cli {
namespace {

// Whole lines, and the last sequence number, where a reconnect continues.
class EventReader {
 public:
  using Take = std::function<void(const Json&, const std::string&)>;
  EventReader(const Take& take, std::string since) : take_(take), since_(std::move(since)) {}

  void feed(std::string_view bytes) {
    buffer_.append(bytes);
    for (size_t end; (end = buffer_.find('\n')) != std::string::npos; buffer_.erase(0, end + 1)) {
      if (end > 0) line(buffer_.substr(0, end));
    }
  }
  void start_over() { buffer_.clear(); }
  const std::string& since() const { return since_; }

 private:
  void line(const std::string& text) {
    const Json event = Json::parse(text);
    if (!event.has("seq")) return;  // a keep-alive
    since_ = event.text("seq");
    take_(event, text);
  }
  const Take& take_;
  std::string since_;
  std::string buffer_;
};

}  // namespace

void read_events(Context& context, const EventsWanted& wanted,
                 const std::function<void(const Json& event, const std::string& text)>& take) {
  EventReader reader(take, wanted.since);
  Backoff backoff(reconnect_patience());
  for (bool connected = false;;) {
    try {
      reader.start_over();
      context.api().download("/v1/events?since=" + percent_encode(reader.since()) +
                                 (wanted.follow ? "&follow=1" : ""),
                             [&](std::string_view bytes) {
                               connected = true;
                               backoff.reset();
                               reader.feed(bytes);
                             });
      if (!wanted.follow || !backoff.wait()) return;
    } catch (const Error& error) {
      const bool again =
          wanted.follow && is_lost(error) && (connected || error.code() == Code::unknown_outcome);
      if (!again || !backoff.wait()) throw;
    }
  }
}

}  // namespace moorage::cli
