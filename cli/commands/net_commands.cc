// `net allow|deny|forget|show|check|log`: the hosts that a workspace may reach.
#include "cli/commands.h"
#include "cli/stream/event_follower.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

struct HostsOptions {
  std::string name;
  std::vector<std::string> hosts;

  void declare(Options& options) {
    options.argument({"NAME", "", "The workspace"}, name);
    options.required_arguments({"HOST", "", "NAME, NAME:PORT, .NAME or https://NAME/PATH; METHODS"},
                               hosts);
  }
};

bool are_methods(const std::string& word) {
  return word.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ,-") == word.npos;
}

// "HOST METHODS" of each.
std::vector<std::string> rules_of(const std::vector<std::string>& words) {
  std::vector<std::string> rules;
  for (const std::string& word : words) {
    if (!are_methods(word)) {
      rules.push_back(word);
    } else if (rules.empty()) {
      throw Error(Code::invalid_argument, "write the host before " + word,
                  "like packages.example.com GET,HEAD");
    } else {
      rules.back() += (rules.back().find(' ') == std::string::npos ? " " : ",") + word;
    }
  }
  return rules;
}

void print_rules(Context& context, const Json& workspace) {
  const std::string mode = workspace.text("network");
  context.print_label("network", mode.empty() ? "default" : mode);
  for (const std::string& rule : workspace.byte_list("network_rules"))
    context.print_label("", printable(rule));
}

void change_rules(Context& context, const HostsOptions& options, std::string_view field) {
  JsonObject request;
  request.add(field, rules_of(options.hosts));
  const auto after = context.parse_or_print(
      context.api().send("POST", context.workspace_path(options.name, "/network"), request.str()));
  if (after) print_rules(context, *after);
}

void allow(Context& context, const HostsOptions& options) {
  change_rules(context, options, "allow");
}
void deny(Context& context, const HostsOptions& options) { change_rules(context, options, "deny"); }
void forget(Context& context, const HostsOptions& options) {
  change_rules(context, options, "forget");
}

void print_use(Context& context, const Json& network) {
  if (!network.has("use")) return context.print_label("use", "nothing asked for a name yet");
  context.print_label("use", network.text("use.connections") + " connections open, " +
                                 network.text("use.connected") + " made; " +
                                 size_text(network, "use.bytes_in") + " in, " +
                                 size_text(network, "use.bytes_out") + " out; " +
                                 network.text("use.refused") + " refused");
}

void show(Context& context, const std::string& name) {
  const auto network =
      context.parse_or_print(context.api().get(context.workspace_path(name, "/network")));
  if (!network) return;
  const std::string summary = network->text("summary");
  context.print_label("network",
                      network->text("network") + (summary.empty() ? "" : "   " + summary));
  print_use(context, *network);
  Table table({"RULE", shrinks("HOST"), "FROM", shrinks("REASON")});
  for (const Json& rule : network->items("rules")) {
    const bool allows = rule.text("verdict") == "allow";
    table.add({Cell(allows ? "allow" : "deny", allows ? Colour::green : Colour::yellow),
               rule.text("host"), rule.text("from"), rule.text("reason")});
  }
  if (!table.empty()) context.print_table(table);
}

struct CheckOptions {
  std::string name;
  std::string host;
  std::string method;

  void declare(Options& options) {
    options.argument({"NAME", "", "The workspace"}, name);
    options.argument({"HOST", "", "Like github.com:22 or https://host/path; port: 443"}, host);
    options.optional_argument({"METHOD", "", "Of a request to it, like POST"}, method);
  }
};

int check(Context& context, const CheckOptions& options) {
  const std::string asked = options.host + (options.method.empty() ? "" : " " + options.method);
  const auto answer = context.parse_or_print(context.api().get(
      context.workspace_path(options.name, "/network/check?host=" + percent_encode(asked))));
  if (!answer) return 0;
  const bool allowed = answer->text("verdict") == "allow";
  context.print_label(
      allowed ? "allowed" : "refused",
      answer->text("host") + ":" + answer->text("port") + "   " + answer->text("why"));
  if (!allowed) context.print_label("inside", answer->text("inside"));
  for (const std::string& note : answer->byte_list("notes"))
    context.print_label("note", printable(note));
  return allowed ? 0 : kFailed;
}

struct LogOptions {
  std::string name;
  bool follow = false;

  void declare(Options& options) {
    options.argument({"NAME", "", "The workspace"}, name);
    options.flag({"-f,--follow", "", "Follow new entries"}, follow);
  }
};

// "2026-11-27 09:12:04  refused  ex_3  api.example.com: no rule allows it".
void print_entry(Context& context, const Json& event) {
  const std::string at = event.text("at");
  const std::string kind = event.text("kind").substr(std::string_view("network.").size());
  context.print(printable(at.substr(0, 10) + " " + at.substr(11, 8) + "  " + kind + "  " +
                          event.text("exec", "-") + "  " + event.text("text")) +
                "\n");
}

void log(Context& context, const LogOptions& options) {
  const Json workspace = Json::parse(context.api().get(context.workspace_path(options.name)));
  const std::string id = workspace.text("id");
  read_events(context, {"0", options.follow}, [&](const Json& event, const std::string& text) {
    if (event.text("workspace") != id || !event.text("kind").starts_with("network.")) return;
    context.json ? context.print_json(text) : print_entry(context, event);
  });
}

}  // namespace

Action net_allow_command(Options& options) { return run_with<HostsOptions>(options, allow); }
Action net_deny_command(Options& options) { return run_with<HostsOptions>(options, deny); }
Action net_forget_command(Options& options) { return run_with<HostsOptions>(options, forget); }
Action net_show_command(Options& options) { return run_with_workspace(options, show); }
Action net_check_command(Options& options) { return run_with<CheckOptions>(options, check); }
Action net_log_command(Options& options) { return run_with<LogOptions>(options, log); }

}  // namespace moorage::cli
