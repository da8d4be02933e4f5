// `info`, `config show`, `version`: the host and the daemon.
#include "base/error.h"
#include "cli/client/context.h"
#include "cli/commands.h"
#include "cli/output/text.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

int print_info(Context& context) {
  const std::string answer = context.api().get("/v1/info");
  if (context.printed_json(answer)) return 0;
  const Json info = Json::parse(answer);
  const auto size = [&info](const char* field) {
    return format_size(static_cast<uint64_t>(info.number(field)));
  };
  std::string text;
  const auto line = [&](const std::string& label, const std::string& about) {
    text += label_lines(label, about, context.terminal.columns);
  };
  line("moorage", info.text("version"));
  if (info.has("rescue")) line("RESCUE", info.text("rescue"));
  line("store", info.text("store") + " (" + info.text("store_id", "id unknown") + "), " +
                    size("space.free_bytes") + " free of " + size("space.total_bytes"));
  line("host", "kernel " + info.text("kernel") + ", cgroup " + info.text("cgroup"));
  line("now", count_of(info.number("counts.workspaces"), "workspace") + ", " +
                  count_of(info.number("counts.sandboxes"), "sandbox") + ", " +
                  count_of(info.number("counts.execs_running"), "running command"));
  for (const Json& backend : info.items("backends")) {
    const bool usable = backend.flag("usable");
    std::string runtimes;
    for (const auto& [name, isolation] : backend.members("runtimes"))
      runtimes += (runtimes.empty() ? "; runtimes: " : ", ") + name + " (" + isolation + ")";
    line("backend", backend.text("name") + ": " +
                        (usable ? backend.text("isolation") + runtimes
                                : "unusable: " + backend.text("reason")));
  }
  if (info.has("policy")) {
    const auto rules = info.number("policy.rules");
    line("policy", rules == 0 ? "no rules" : count_of(rules, "rule"));
    for (const Json& rule : info.items("policy.yours"))
      line("", rule.text("name") + ": " + rule.text("text"));
  }
  if (const Json replica = info.at("replica"); replica.is_object()) {
    line("copy", off_host_text(replica) + ", in " + replica.text("directory"));
    if (replica.has("problem")) line("", replica.text("problem"));
    if (replica.has("hint")) line("", "hint: " + replica.text("hint"));
    for (const Json& note : replica.items("notes")) line("", note.text());
  }
  for (const Json& check : info.items("checks")) {
    const bool ok = check.flag("ok");
    line(ok ? "ok" : "MISSING", check.text("name") + ": " + check.text("text"));
    if (!check.text("hint").empty()) line("", "hint: " + check.text("hint"));
  }
  context.print(text);
  return 0;
}

int print_config(Context& context) {
  const std::string answer = context.api().get("/v1/config");
  if (context.printed_json(answer)) return 0;
  Table table({{"SETTING"}, {"VALUE", false, true}, {"FROM", false, true}});
  for (const Json& setting : Json::parse(answer).items()) {
    std::string value = setting.text("value");
    if (!setting.text("unit").empty()) value.append(" ").append(setting.text("unit"));
    table.add({setting.text("name"), value, setting.text("source")});
  }
  context.print_table(table);
  return 0;
}

// Works without a daemon: people type it first when something is wrong.
int print_version(Context& context) {
  std::string daemon;
  try {
    daemon = Json::parse(context.api().get("/v1/info")).text("version");
  } catch (const Error&) {
    // An unreachable daemon is a valid answer here.
  }
  if (context.json) {
    JsonObject json;
    json.add("version", MOORAGE_VERSION);
    if (!daemon.empty()) json.add("daemon_version", daemon);
    context.print_json(json.str());
    return 0;
  }
  context.print("moorage " MOORAGE_VERSION ", daemon " +
                (daemon.empty() ? "not reachable" : printable(daemon)) + "\n");
  return 0;
}

}  // namespace

Action info_command(Options&) { return print_info; }

Action config_show_command(Options&) { return print_config; }

Action version_command(Options&) { return print_version; }

}  // namespace moorage::cli
