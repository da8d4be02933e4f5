// `events`: the recorded events, one line each; -f follows new ones across restarts of the daemon.
#include "cli/commands.h"
#include "cli/stream/event_follower.h"

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

void print_events(Context& context, const EventOptions& options) {
  read_events(context, {options.since, options.follow},
              [&context](const Json& event, const std::string& text) {
                context.json ? context.print_json(text) : context.print(event_line(event));
              });
}

}  // namespace

Action events_command(Options& options) { return run_with<EventOptions>(options, print_events); }

}  // namespace moorage::cli
