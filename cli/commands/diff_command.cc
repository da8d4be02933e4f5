// `diff`: the changes in a workspace, as a patch, as numbers or as names.
#include <algorithm>

#include "base/log.h"
#include "cli/client/remote_path.h"
#include "cli/commands.h"
#include "cli/commands/patch_output.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

struct DiffOptions {
  std::string name;
  std::vector<std::string> paths;
  bool stat = false;
  bool name_only = false;
  std::string base = "work";

  void declare(Options& options) {
    options.argument({"NAME", "", "The workspace"}, name);
    options.arguments({"PATH", "", "Only these files and directories"}, paths);
    options.flag({"--stat", "", "Count the changed lines of each file"}, stat);
    options.flag({"--name-only", "", "Print only the paths of the changed files"}, name_only);
    options.value({"--base", "WHAT", "work: as it was created; head: the commit it began at"},
                  base);
  }
};

// "src/a.ts | 212 +++++---", as git shows it, with a scaled bar.
std::string stat_line(const Json& file, size_t path_width, int64_t most) {
  constexpr int64_t kBar = 20;
  const int64_t added = file.number("added"), removed = file.number("removed");
  std::string path = shorten(printable(file.bytes("path")), path_width);
  path.append(path_width - std::min(path_width, display_width(path)), ' ');
  if (file.has("left_out"))
    return " " + path +
           (file.text("left_out") == "nested" ? " | repository\n" : " | not for git\n");
  if (file.flag("binary")) return " " + path + " | binary " + file.text("change") + "\n";
  const int64_t total = std::max<int64_t>(most, kBar);
  const auto part = [total](int64_t n) {
    return static_cast<size_t>(n == 0 ? 0 : std::max<int64_t>(1, n * kBar / total));
  };
  return " " + path + " | " + std::to_string(added + removed) + " " +
         std::string(part(added), '+') + std::string(part(removed), '-') + "\n";
}

void print_stat(Context& context, const std::string& answer) {
  const auto diff = context.parse_or_print(answer);
  if (!diff) return;
  constexpr size_t kWidestPath = 48;
  const std::vector<Json> files = diff->items();
  size_t path_width = 0;
  int64_t most = 0, added = 0, removed = 0;
  for (const Json& file : files) {
    path_width = std::max(path_width, display_width(printable(file.bytes("path"))));
    added += file.number("added");
    removed += file.number("removed");
    most = std::max(most, file.number("added") + file.number("removed"));
  }
  if (context.terminal.out) path_width = std::min(path_width, kWidestPath);
  std::string text;
  for (const Json& file : files) text += stat_line(file, path_width, most);
  context.print(text + " " + count_of(static_cast<int64_t>(files.size()), "file") + ", +" +
                std::to_string(added) + " -" + std::to_string(removed) + "\n");
}

void print_names(Context& context, const std::string& answer) {
  std::string text;
  for (const Json& file : Json::parse(answer).items()) {
    const std::string path = file.bytes("path");
    text += (context.terminal.out ? printable(path) : path) + "\n";
  }
  context.print(text);
}

// Files that count, but that a patch lacks.
void note_left_out(Context& context, const std::string& answer, const std::string& name) {
  for (const Json& file : Json::parse(answer).items()) {
    if (file.has("left_out"))
      context.note(left_out_text(file.bytes("path"), file.text("left_out"), name));
  }
}

int print_diff(Context& context, const DiffOptions& wanted) {
  std::string target =
      context.workspace_path(wanted.name, "/diff?base=" + percent_encode(wanted.base, true));
  for (const std::string& path : wanted.paths) target += "&path=" + percent_encode(path, true);
  const std::string if_empty = wanted.paths.empty()
                                   ? ""
                                   : "nothing is changed at these paths; moorage status " +
                                         wanted.name + " lists all changes";
  if (!context.json && wanted.base == "work") note_moved_base(context, wanted.name);
  if (!wanted.stat && !wanted.name_only && !context.json)
    return print_patch(context, target, wanted.name, if_empty);
  const std::string answer = context.api().get(target + "&stat=1");
  if (!if_empty.empty() && Json::parse(answer).items().empty()) context.note(if_empty);
  if (wanted.name_only && !context.json) {
    print_names(context, answer);
  } else {
    print_stat(context, answer);
    note_left_out(context, answer, wanted.name);
  }
  return 0;
}

}  // namespace

Action diff_command(Options& options) { return run_with<DiffOptions>(options, print_diff); }

}  // namespace moorage::cli
