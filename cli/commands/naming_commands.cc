// `rename` and `label`: what a workspace is called.
#include <set>

#include "cli/commands.h"

namespace moorage::cli {
namespace {

struct RenameOptions {
  std::string name;
  std::string new_name;

  void declare(Options& options) {
    options.argument({"NAME", "", "The workspace"}, name);
    options.argument({"NEW", "", "Its new name"}, new_name);
  }
};

void rename_workspace(Context& context, const RenameOptions& options) {
  const std::string body = JsonObject().add("name", options.new_name).str();
  const auto workspace = context.parse_or_print(
      context.api().send("PATCH", context.workspace_path(options.name), body));
  if (workspace) context.print_label("renamed", options.name + " -> " + workspace->text("name"));
}

struct LabelOptions {
  std::string name;
  std::vector<std::string> changes;

  void declare(Options& options) {
    options.argument({"NAME", "", "The workspace"}, name);
    options.arguments({"CHANGE", "", "K=V sets a label, K- removes it; default: show them"},
                      changes);
  }
};

JsonObject labels_of(const std::vector<std::string>& changes) {
  std::set<std::string> keys;
  JsonObject object;
  for (const std::string& change : changes) {
    const size_t equals = change.find('=');
    const bool removes = equals == std::string::npos && change.size() > 1 && change.ends_with('-');
    if (equals == 0 || (equals == std::string::npos && !removes)) {
      throw Error(Code::invalid_argument, "'" + change + "' is neither K=V nor K-",
                  "moorage label auth task=AUTH-12 old-");
    }
    const std::string key =
        removes ? change.substr(0, change.size() - 1) : change.substr(0, equals);
    if (!keys.insert(key).second)
      throw Error(Code::invalid_argument, "the label '" + key + "' is named twice");
    removes ? object.add(key, Json()) : object.add(key, change.substr(equals + 1));
  }
  return object;
}

// The daemon removes a label that is not there without a word.
void note_missing(Context& context, const std::string& path, const LabelOptions& options) {
  std::set<std::string> removed;
  for (const std::string& change : options.changes) {
    if (change.find('=') == std::string::npos) removed.insert(change.substr(0, change.size() - 1));
  }
  if (removed.empty()) return;
  for (const auto& [key, value] : Json::parse(context.api().get(path)).members("labels"))
    removed.erase(key);
  for (const std::string& key : removed) context.note(options.name + " has no label '" + key + "'");
}

void label(Context& context, const LabelOptions& options) {
  const std::string path = context.workspace_path(options.name);
  const JsonObject wanted = labels_of(options.changes);
  note_missing(context, path, options);
  const std::string answer =
      options.changes.empty()
          ? context.api().get(path)
          : context.api().send("PATCH", path, JsonObject().add("labels", wanted).str());
  const auto workspace = context.parse_or_print(answer);
  if (!workspace) return;
  std::string text;
  for (const auto& [key, value] : workspace->members("labels"))
    text += (text.empty() ? "" : " ") + key + "=" + value;
  context.print_label("labels", text.empty() ? "none" : text);
}

}  // namespace

Action rename_command(Options& options) {
  return run_with<RenameOptions>(options, rename_workspace);
}
Action label_command(Options& options) { return run_with<LabelOptions>(options, label); }

}  // namespace moorage::cli
