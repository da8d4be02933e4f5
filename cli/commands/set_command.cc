// `set`: changes the settings and limits of a workspace.
#include "base/error.h"
#include "cli/client/context.h"
#include "cli/commands.h"
#include "cli/commands/policy_options.h"
#include "cli/output/text.h"

namespace moorage::cli {
namespace {

struct SetOptions {
  std::string name;
  PolicyOptions policy;
};

int set(Context& context, const SetOptions& options) {
  const std::string path = context.workspace_path(options.name);
  JsonObject request;
  add_policy(request, options.policy);
  if (request.empty()) {
    throw Error(
        Code::invalid_argument, "set needs an option",
        "the options: moorage set --help; the current values: moorage show " + options.name);
  }
  const Json before = context.json ? Json() : Json::parse(context.api().get(path));
  const std::string answer = context.api().send("PATCH", path, request.str());
  if (context.printed_json(answer)) return 0;
  const Json workspace = Json::parse(answer);
  context.print(label_line("set", workspace.text("name")));
  for (const auto& [field, was, is] : policy_changes(options.policy, before, workspace))
    context.print(
        label_line("", field + " " + (was == is ? is + " (unchanged)" : was + " -> " + is)));
  if (workspace.has("notice")) context.print(label_line("note", workspace.text("notice")));
  return 0;
}

}  // namespace

Action set_command(Options& options) {
  auto chosen = std::make_shared<SetOptions>();
  options.argument({"NAME", "", "The workspace"}, chosen->name);
  declare_policy(options, chosen->policy);
  return [chosen](Context& context) { return set(context, *chosen); };
}

}  // namespace moorage::cli
