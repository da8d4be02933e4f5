// `move`: first prints what the new place lacks, then waits for running commands.
#include <optional>

#include "cli/commands.h"
#include "cli/views/progress.h"

namespace moorage::cli {
namespace {

constexpr int kPollMs = 30'000;       // for each request; the wait has no limit
constexpr int64_t kSettleMs = 5'000;  // for commands that start or end just now
constexpr int64_t kCancelMs = 60'000;

struct Wanted {
  std::string workspace;
  std::string backend;
  std::string image;
  std::string runtime;
  bool now = false;
  bool check = false;

  void declare(Options& options) {
    options.argument({"NAME", "", "The workspace"}, workspace);
    options.value({"--backend", "NAME", "Backend of its sandboxes from now on"}, backend);
    options.value({"--image", "NAME", "Root file system; default: host, or unchanged"}, image);
    options.value({"--runtime,--host", "NAME", "Runtime of the backend's engine, or host of ssh"},
                  runtime);
    options.flag({"--now", "", "Cancel running commands instead of waiting for them"}, now);
    options.flag({"--check", "", "Only show what it would do and leave behind", "--dry-run"},
                 check);
  }
};

JsonObject place_of(const Wanted& wanted) {
  JsonObject body;
  if (!wanted.backend.empty()) body.add("backend", wanted.backend);
  if (!wanted.image.empty()) body.add("image", wanted.image);
  if (!wanted.runtime.empty()) body.add("runtime", wanted.runtime);
  if (!body.empty()) return body;
  throw Error(Code::invalid_argument, "move needs --backend, --image or --runtime",
              "moorage move " + wanted.workspace + " --backend docker");
}

std::string side_text(const Json& side) {
  std::string text = side.text("backend") + ", image " + side.text("image");
  if (side.has("runtime")) text += ", runtime " + side.text("runtime");
  return text + ", " + side.text("isolation", "isolation unknown");
}

std::string ask(Context& context, const Wanted& wanted) {
  return context.api().send("POST", context.workspace_path(wanted.workspace, "/move/check"),
                            place_of(wanted).str());
}

void check(Context& context, const Wanted& wanted) {
  const auto plan = context.parse_or_print(ask(context, wanted));
  if (!plan) return;
  std::string text = label_line("from", side_text(plan->at("from")));
  text += label_line("to", side_text(plan->at("to")));
  text +=
      label_line("sandbox", plan->flag("running") ? "running; will be replaced" : "not running");
  for (const Json& exec : plan->items("execs"))
    text += label_line("waits", "for " + exec.text() + "; cancel it instead: --now");
  for (const Json& notice : plan->items("notices")) text += label_line("note", notice.text());
  context.print(text);
}

// Waits until all commands of the plan have ended; notes each once.
void wait_for_commands(Context& context, const Wanted& wanted, Json plan) {
  std::string noted;
  for (;;) {
    const auto execs = plan.items("execs");
    if (execs.empty()) return;
    const std::string id = execs.front().text();
    if (noted != id) context.note("waiting for " + id + "; --now cancels it");
    noted = id;
    context.api().get(context.exec_path(id, "/wait?timeout_ms=" + std::to_string(kPollMs)));
    plan = Json::parse(ask(context, wanted));
  }
}

std::string move_now(Context& context, const Wanted& wanted) {
  JsonObject body = place_of(wanted);
  if (wanted.now) body.add("now", true);
  body.add("wait_ms", wanted.now ? kCancelMs : kSettleMs);
  return context.api().send("POST", context.workspace_path(wanted.workspace, "/move"), body.str(),
                            {.slow = true});
}

void move(Context& context, const Wanted& wanted) {
  if (wanted.check) return check(context, wanted);
  const Stopwatch watch;
  const Json plan = Json::parse(ask(context, wanted));
  for (const Json& notice : plan.items("notices")) context.note(notice.text());
  std::optional<std::string> answer;
  while (!answer) {
    if (!wanted.now) wait_for_commands(context, wanted, Json::parse(ask(context, wanted)));
    try {
      answer = move_now(context, wanted);
    } catch (const Error& error) {
      // A command started in between: wait for it, too.
      const bool busy = error.code() == Code::conflict && !wanted.now &&
                        !Json::parse(ask(context, wanted)).items("execs").empty();
      if (!busy) throw;
    }
  }
  const auto moved = context.parse_or_print(*answer);
  if (!moved) return;
  const bool same = plan.at("from").dump() == plan.at("to").dump();
  context.print_label(
      same ? "stayed" : "moved",
      moved->text("name") + "   " + side_text(plan.at("to")) + "   " + watch.took());
}

}  // namespace

Action move_command(Options& options) { return run_with<Wanted>(options, move); }

}  // namespace moorage::cli
