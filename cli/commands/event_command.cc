// `events`: the recorded events, one line each; -f follows new ones across restarts of the daemon.
#include "cli/client/backoff.h"
#include "cli/commands.h"

namespace moorage::cli {
namespace {

struct EventOptions {
  bool follow = false;
  std::string since = "0";

  void declare(Options& options) {
    options.flag({"-f,--follow", "", "Follow new events"}, follow);
    options.value({"--since", "SEQ", "Only events after this number"}, since);
  }
};

// "09:12:04  exec  ex_3  running -> exited".
std::string event_line(const Json& event) {
  const std::string at = event.text("at");
  std::string text = at.size() >= 19 ? at.substr(0, 10) + " " + at.substr(11, 8) : at;
  text += "  " + event.text("kind");
  for (const char* field : {"workspace", "sandbox", "exec"}) {
    if (event.has(field)) text += "  " + event.text(field);
  }
  if (event.has("to")) text += "  " + event.text("from", "new") + " -> " + event.text("to");
  if (event.has("text")) text += "  " + event.text("text");
  return printable(text) + "\n";
}

// Prints whole lines and remembers the last sequence number, where a reconnect continues.
class EventPrinter {
 public:
  EventPrinter(Context& context, std::string since) : context_(context), since_(std::move(since)) {}

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
    context_.json ? context_.print_json(text) : context_.print(event_line(event));
  }
  Context& context_;
  std::string since_;
  std::string buffer_;
};

void print_events(Context& context, const EventOptions& options) {
  EventPrinter printer(context, options.since);
  Backoff backoff(reconnect_patience());
  for (bool connected = false;;) {
    try {
      printer.start_over();
      context.api().download("/v1/events?since=" + percent_encode(printer.since()) +
                                 (options.follow ? "&follow=1" : ""),
                             [&](std::string_view bytes) {
                               connected = true;
                               backoff.reset();
                               printer.feed(bytes);
                             });
      if (!options.follow || !backoff.wait()) return;
    } catch (const Error& error) {
      const bool again =
          options.follow && is_lost(error) && (connected || error.code() == Code::unknown_outcome);
      if (!again || !backoff.wait()) throw;
    }
  }
}

}  // namespace

Action events_command(Options& options) { return run_with<EventOptions>(options, print_events); }

}  // namespace moorage::cli
