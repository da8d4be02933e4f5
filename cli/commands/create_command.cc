// `create`: makes a workspace from a URL or a local directory.
#include <chrono>

#include "base/error.h"
#include "cli/client/context.h"
#include "cli/commands.h"
#include "cli/commands/workspace_source.h"
#include "cli/output/text.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

int create(Context& context, const WorkspaceSource& source) {
  if (source.repo.empty() && source.from.empty()) {
    throw Error(Code::invalid_argument, "create needs --repo or --from",
                "moorage create --repo URL  or  moorage create --from DIR");
  }
  const auto began = steady_clock::now();
  const std::string answer = make_workspace(context, source, false);
  if (context.printed_json(answer)) return 0;
  const Json workspace = Json::parse(answer);
  const auto took = duration_cast<milliseconds>(steady_clock::now() - began);
  const std::string commit = short_commit(workspace.text("base.commit"));
  std::string base = workspace.text("repo.name") + " " + base_text(workspace);
  if (!base.ends_with(commit)) base += " " + commit;
  std::string text = label_line("base", base);
  if (workspace.flag("base.stale")) {
    text += label_line("STALE", "upstream did not answer; using the last fetch");
  }
  const std::string changes = changes_text(workspace);
  text +=
      label_line("ready", workspace.text("name") + "   /workspace   " + workspace.text("backend") +
                              (changes == "-" ? "" : "   " + changes + " changed") + "   " +
                              format_took(took.count()));
  context.print(text);
  return 0;
}

}  // namespace

Action create_command(Options& options) {
  auto source = std::make_shared<WorkspaceSource>();
  declare_source(options, *source);
  return [source](Context& context) { return create(context, *source); };
}

}  // namespace moorage::cli
