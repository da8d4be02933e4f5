// `apply`: an agent's changes in a directory of the caller's.
#include <algorithm>

#include "base/log.h"
#include "base/size_text.h"
#include "base/wire/workspace_path.h"
#include "cli/client/kept_leases.h"
#include "cli/client/remote_path.h"
#include "cli/commands.h"
#include "cli/local/apply.h"
#include "cli/local/checkout.h"
#include "cli/local/git_calls.h"

namespace moorage::cli {
namespace {

struct ApplyOptions {
  std::string name;
  std::string directory = ".";
  std::vector<std::string> only;
  bool check = false;

  void declare(Options& options) {
    options.argument({"NAME", "", "The workspace"}, name);
    options.optional_argument({"DIR", "", "A checkout; default: the current directory"}, directory);
    options.values({"--only", "PATH", "Only this file or directory of the workspace"}, only);
    options.flag({"--check", "", "Only say whether it can be applied", "--dry-run"}, check);
  }
};

uint32_t mode_of(const Json& file, const char* field) {
  const std::string text = file.text(field);
  return text.empty() ? 0 : static_cast<uint32_t>(std::stoul(text, nullptr, 8));
}

bool is_safe_path(std::string_view path) {
  while (!path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    if (!is_safe_name(part) || part == ".git") return false;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return true;
}

bool is_selected(std::string_view path, const std::vector<std::string>& only) {
  return only.empty() || std::any_of(only.begin(), only.end(), [path](std::string_view wanted) {
           if (wanted.empty()) return true;
           return path.starts_with(wanted) &&
                  (path.size() == wanted.size() || path[wanted.size()] == '/');
         });
}

std::vector<AgentChange> changes_of(Context& context, const std::string& name,
                                    const std::vector<std::string>& only) {
  std::vector<std::string> wanted;
  for (const std::string& path : only) wanted.push_back(base::workspace_path(path));
  const Json status = Json::parse(context.api().get(context.workspace_path(name, "/status")));
  if (status.flag("truncated")) {
    throw Error(Code::resource_exhausted, name + " has more changes than can be listed",
                "list build results in .gitignore there, then try again");
  }
  std::vector<AgentChange> changes;
  for (const Json& file : status.items("files")) {
    const std::string path = file.bytes("path");
    if (!is_selected(path, wanted)) continue;
    if (path.ends_with('/')) {
      context.note(base::escape_for_message(path) +
                   " is a nested repository and is not applied; moorage cp brings it");
      continue;
    }
    if (!is_safe_path(path))
      throw Error(Code::corrupted, "invalid file name: '" + base::escape_for_message(path) + "'");
    changes.push_back({path, mode_of(file, "mode_before"), mode_of(file, "mode_after")});
  }
  if (changes.empty() && !only.empty())
    throw Error(Code::not_found, "nothing is changed in " + name + " at these paths",
                "moorage status " + name + " lists the changed files");
  return changes;
}

// Git can undo nothing in a plain directory, and a checkout of another repository is a mistake.
void warn_of_place(Context& context, const Checkout& checkout, const std::string& name) {
  if (checkout.is_plain())
    return context.note(checkout.top +
                        " is not a git checkout: git cannot show or undo changes there");
  if (is_shallow(checkout) || !promisor_of(checkout).empty()) return;  // they lack commits
  const Json workspace = Json::parse(context.api().get(context.workspace_path(name)));
  const std::string commit = workspace.text("base.commit");
  for (const std::string& known : {commit, workspace.text("base.moved_to")}) {
    if (!known.empty() && try_git({"cat-file", "-e", known + "^{commit}"}, checkout.call()).ok())
      return;
  }
  context.note(checkout.top + " does not have commit " + commit.substr(0, 7) + ", where " + name +
               " began: is it the right repository?");
}

std::string link_target(RemoteFiles& files, const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "" : path.substr(0, slash);
  const auto entries = files.list(parent);
  if (entries) {
    for (const RemoteEntry& entry : *entries) {
      if (entry.name == path.substr(slash + 1) && entry.type == "symlink") return entry.target;
    }
  }
  throw Error(Code::conflict, base::escape_for_message(path) + " changed while it was read",
              "try again");
}

std::string plans_directory() {
  const std::string home = state_home();
  if (home.empty())
    throw Error(Code::invalid_argument, "there is no place for notes: HOME is not set");
  return home + "/moorage/apply";
}

void apply(Context& context, const ApplyOptions& options) {
  const Checkout checkout = find_checkout(options.directory);
  const std::string& top = checkout.top;
  warn_of_place(context, checkout, options.name);
  RemoteFiles files(context, options.name);
  AgentContents contents;
  contents.before = [&](const std::string& path, const ContentSink& sink) {
    context.api().download(
        context.workspace_path(options.name, "/base?path=" + percent_encode(path, true)), sink);
  };
  contents.after = [&](const AgentChange& change, const ContentSink& sink) {
    constexpr uint32_t kLink = 0120000;
    change.after == kLink ? sink(link_target(files, change.path)) : files.read(change.path, sink);
  };
  const auto changes = changes_of(context, options.name, options.only);
  Applied applied;
  try {
    applied = apply_changes(top, plans_directory(), changes, contents, options.check);
  } catch (const Error& error) {
    if (error.code() != Code::conflict || !error.hint().empty()) throw;
    throw Error(Code::conflict, error.message(),
                "take the others with --only PATH; merge these by hand: moorage diff " +
                    options.name + " -- PATH | git apply --reject, or moorage cp " + options.name +
                    ":PATH FILE");
  }
  if (context.json) {
    return context.print_json(JsonObject()
                                  .add("directory", top)
                                  .add("taken", static_cast<int64_t>(applied.taken))
                                  .add("merged", static_cast<int64_t>(applied.merged))
                                  .add("present", static_cast<int64_t>(applied.present))
                                  .str());
  }
  std::string text = count_of(static_cast<int64_t>(applied.taken + applied.merged), "file");
  if (applied.merged > 0) text += ", " + std::to_string(applied.merged) + " merged with yours";
  if (applied.present > 0)
    text += "; " + std::to_string(applied.present) + " " +
            base::verb_text(applied.present, "were") + " there already";
  context.print_label(options.check ? "fits" : "applied", text + "   " + top);
}

}  // namespace

Action apply_command(Options& options) { return run_with<ApplyOptions>(options, apply); }

}  // namespace moorage::cli
