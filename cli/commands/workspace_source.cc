#include "cli/commands/workspace_source.h"

#include "base/error.h"
#include "cli/local/import.h"
#include "cli/output/text.h"
#include "cli/views/progress.h"

namespace moorage::cli {
namespace {

JsonObject request_of(const WorkspaceSource& source) {
  JsonObject request;
  const auto add = [&request](const char* field, const std::string& value) {
    if (!value.empty()) request.add(field, value);
  };
  add("name", source.name);
  add("repo_url", source.repo);
  add("ref", source.ref);
  add("branch", source.branch);
  add("backend", source.backend);
  add("image", source.image);
  add("runtime", source.runtime);
  add("team", source.team);
  std::map<std::string, std::string> labels;
  for (const std::string& label : source.labels) labels.insert(split_assignment(label, "--label"));
  if (!labels.empty()) request.add("labels", labels);
  add_policy(request, source.policy);
  return request;
}

}  // namespace

std::pair<std::string, std::string> split_assignment(const std::string& text,
                                                     const std::string& option) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(Code::invalid_argument, option + ": '" + text + "' is not KEY=VALUE");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

void declare_source(Options& options, WorkspaceSource& source) {
  options.value({"--repo", "URL", "Repository to start from"}, source.repo);
  options.value({"--from", "DIR", "Local directory, with uncommitted files"}, source.from);
  options.value({"--team", "GROUP", "A group of this host whose members may use it"}, source.team);
  options.value({"--ref", "REF", "Branch, tag or commit; default: its default branch"}, source.ref);
  options.value({"--branch", "NAME", "Branch for the work"}, source.branch);
  options.value({"--name", "NAME", "Name of the workspace; default: generated"}, source.name);
  options.values({"--label", "K=V", "A label; may be repeated"}, source.labels);
  declare_policy(options, source.policy);
  options.value({"--backend", "NAME", "Backend of the sandbox, like lxc"}, source.backend);
  options.value({"--image", "NAME", "Root file system of the sandbox"}, source.image);
  options.value({"--runtime", "NAME", "Runtime of the backend's engine, like crun or runsc"},
                source.runtime);
}

std::string make_workspace(Context& context, const WorkspaceSource& source, bool disposable) {
  if (!source.repo.empty() && !source.from.empty()) {
    throw Error(Code::invalid_argument, "--repo and --from exclude each other");
  }
  if (!source.ref.empty() && !source.from.empty()) {
    throw Error(Code::invalid_argument,
                "--ref and --from exclude each other: --from takes the checked-out commit",
                "check out the ref there first, or: moorage create --repo URL --ref " + source.ref);
  }
  JsonObject request =
      request_of(source);  // first, so that wrong options are refused before anything is sent
  Progress progress(context);
  if (!source.from.empty()) {
    const ImportedTree tree = import_directory(context, source.from, progress);
    request.add("import", JsonObject()
                              .add("repo", tree.repo)
                              .add("head_commit", tree.head_commit)
                              .add("work_commit", tree.work_commit));
  }
  if (disposable) request.add("disposable", true);
  const std::string answer =
      context.api().send_long("POST", "/v1/workspaces", request.str(), progress.sink());
  progress.finish();
  return answer;
}

}  // namespace moorage::cli
