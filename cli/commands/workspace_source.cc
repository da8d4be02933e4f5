#include "cli/commands/workspace_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/files.h"
#include "cli/commands.h"
#include "cli/local/bundle.h"
#include "cli/local/ignored.h"
#include "cli/local/unkept.h"
#include "cli/views/progress.h"
#include "cli/views/workspace_view.h"

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

std::vector<std::string> tips_of_daemon(Context& context, const std::string& target) {
  try {
    return Json::parse(context.api().get(target)).texts("tips");
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
    return {};  // the first import of this directory
  }
}

std::string upload(Context& context, const std::string& target, const LocalBundle::Written& bundle,
                   Progress& progress) {
  const Fd file = base::open_file(bundle.path, O_RDONLY);
  const std::string what = "read " + bundle.path;
  const auto size = static_cast<uint64_t>(base::check(::lseek(file.get(), 0, SEEK_END), what)) -
                    bundle.body_offset;  // the header is sent from memory and not counted
  base::check(::lseek(file.get(), static_cast<off_t>(bundle.body_offset), SEEK_SET), what);
  size_t header_sent = 0;
  uint64_t sent = 0;
  return context.api().upload("POST", target, [&](char* buffer, size_t room) -> size_t {
    if (header_sent < bundle.header.size()) {
      const size_t copied = bundle.header.copy(buffer, room, header_sent);
      header_sent += copied;
      return copied;
    }
    const ssize_t got = base::check(::read(file.get(), buffer, room), what);
    sent += static_cast<uint64_t>(got);
    progress.update("upload", static_cast<int64_t>(size == 0 ? 100 : sent * 100 / size),
                    format_size(sent) + " of " + format_size(size));
    return static_cast<size_t>(got);
  });
}

struct Imported {
  JsonObject request;  // its field `import`
  IgnoredFiles ignored;
};

// `--from DIR`: streams a local directory to the daemon in a git bundle: its history, and the
// changed and untracked files. Git runs as the calling user: the daemon never opens a client's
// path.
Imported import_directory(Context& context, const WorkspaceSource& source, Progress& progress) {
  progress.update("read", -1, source.from);
  LocalBundle local(source.from);
  std::string target = "/v1/repos/import?label=" + percent_encode(local.top(), true);
  const std::vector<std::string> tips =
      tips_of_daemon(context, target);  // also checks that the daemon answers
  local.commit();
  const LocalBundle::Written bundle = local.write(tips);
  Imported imported;
  if (source.ignored) imported.ignored = find_ignored(local.top(), local.in_tree());
  if (!local.origin().empty()) target += "&origin=" + percent_encode(local.origin(), true);
  const Json tree = Json::parse(upload(context, target, bundle, progress));
  progress.finish();
  for (const std::string& note : local.notes()) context.note(note);
  for (const std::string& note : imported.ignored.notes) context.note(note);
  const std::string head = tree.text("head_commit", local.head_commit());
  const std::string work = tree.text("work_commit", local.work_commit());
  const std::string raw = tree.text("raw_commit", local.raw_commit());
  if (head != local.head_commit() || work != local.work_commit() || raw != local.raw_commit())
    throw Error(Code::corrupted, "the daemon received other commits than those sent");
  imported.request.add("repo", tree.text("repo"))
      .add("head_commit", head)
      .add("work_commit", work)
      .add("raw_commit", raw);
  return imported;
}

// The command that copies a path again.
std::string copy_again(const IgnoredFiles& ignored, std::string path, const std::string& name) {
  if (path.ends_with('/')) path.pop_back();
  const std::string parent = path.substr(0, path.rfind('/') + 1);
  return join_command({"moorage", "cp", ignored.top + "/" + path, name + ":" + parent});
}

// Deletes a disposable workspace that lacks some.
void bring_ignored(Context& context, const Json& workspace, const IgnoredFiles& ignored,
                   bool disposable, Progress& progress) {
  const std::string id = workspace.text("id");
  const std::string name = workspace.text("name");
  RemoteFiles files(context, id);
  const CopiedIgnored copied =
      copy_ignored(files, ignored, [&](size_t percent, const std::string& path) {
        progress.update("ignored", static_cast<int64_t>(percent), path);
      });
  progress.finish();
  if (copied.skipped > 0) {
    context.note("ignored pipes, sockets and devices stay here: " + std::to_string(copied.skipped));
  }
  if (!copied.special_modes.empty()) {
    context.note("copied without setuid, setgid and sticky bits: " + some_of(copied.special_modes));
  }
  if (copied.missing.empty()) return;
  const std::string missing = some_of(copied.missing) + " (" + copied.reason + ")";
  if (disposable) {
    context.api().send("DELETE", context.workspace_path(id, "?purge=1"));
    throw Error(Code::io, "cannot copy ignored files: " + missing + "; the workspace is deleted",
                "run it without --ignored, or make these files readable");
  }
  throw Error(Code::io, name + " is ready, but lacks ignored files: " + missing,
              "copy each again: " + copy_again(ignored, copied.missing.front(), name));
}

void create(Context& context, const WorkspaceSource& source) {
  if (source.repo.empty() && source.from.empty()) {
    throw Error(Code::invalid_argument, "create needs --repo or --from",
                "moorage create URL  or  moorage create DIR");
  }
  const Stopwatch watch;
  const auto workspace = context.parse_or_print(make_workspace(context, source, false));
  if (!workspace) return;
  const std::string commit = short_commit(workspace->text("base.commit"));
  std::string base = workspace->text("repo.name") + " " + base_text(*workspace);
  if (!base.ends_with(commit)) base += " " + commit;
  base += work_text(*workspace);
  std::string text = label_line("base", base);
  if (workspace->flag("base.stale")) {
    text += label_line("STALE", "upstream did not answer; using the last fetch");
  }
  const std::string changes = changes_text(*workspace);
  text += label_line(
      "ready", workspace->text("name") + "   /workspace   " + workspace->text("backend") +
                   (changes == "-" ? "" : "   " + changes + " changed") + "   " + watch.took());
  context.print(text);
}

struct CreateOptions {
  std::string place;
  WorkspaceSource source;

  void declare(Options& options) {
    options.optional_argument({"SOURCE", "", "URL of a repository, or a local directory"}, place);
    source.declare(options);
  }
};

bool is_directory(const std::string& place) {
  struct stat found {};
  return ::stat(place.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

void create_from_place(Context& context, const CreateOptions& options) {
  WorkspaceSource source = options.source;
  const bool has_option = !source.repo.empty() || !source.from.empty();
  if (!options.place.empty() && has_option) {
    throw Error(Code::invalid_argument,
                "SOURCE excludes --repo and --from: '" + options.place + "' is the second source",
                "moorage create " + join_command({options.place}));
  }
  const bool is_here = is_directory(options.place);
  if (!options.place.empty() && !is_here && options.place.find(':') == std::string::npos) {
    throw Error(Code::not_found, "there is no directory '" + options.place + "'",
                "a URL looks like https://host/owner/name");
  }
  if (!options.place.empty()) (is_here ? source.from : source.repo) = options.place;
  create(context, source);
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

void WorkspaceSource::declare(Options& options) {
  options.value({"--repo", "URL", "Repository to start from"}, repo);
  options.value({"--from", "DIR", "Local directory, with uncommitted files"}, from);
  options.flag({"--ignored", "", "With --from: also files that .gitignore files name"}, ignored);
  options.value({"--team", "GROUP", "A group of this host whose members may use it"}, team);
  options.value({"--ref", "REF", "Branch, tag, commit, or a ref like pull/7/head"}, ref);
  options.value({"--branch", "NAME", "Branch for the work"}, branch);
  options.value({"--name", "NAME", "Name of the workspace; default: generated"}, name);
  options.values({"--label", "K=V", "A label; may be repeated"}, labels);
  policy.declare(options);
  options.value({"--backend", "NAME", "Backend of the sandbox, like lxc"}, backend);
  options.value({"--image", "NAME", "Root file system of the sandbox"}, image);
  options.value({"--runtime,--host", "NAME", "Runtime of its engine, like crun; or host of ssh"},
                runtime);
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
  if (source.ignored && source.from.empty()) {
    throw Error(Code::invalid_argument, "--ignored needs a local directory",
                "moorage create --from DIR --ignored");
  }
  JsonObject request =
      request_of(source);  // first, so that wrong options are refused before anything is sent
  Progress progress(context);
  Imported imported;
  if (!source.from.empty()) {
    imported = import_directory(context, source, progress);
    request.add("import", imported.request);
  }
  if (disposable) request.add("disposable", true);
  const std::string answer =
      context.api().send_long("POST", "/v1/workspaces", request.str(), progress.sink());
  progress.finish();
  if (!imported.ignored.paths.empty())
    bring_ignored(context, Json::parse(answer), imported.ignored, disposable, progress);
  return answer;
}

Action create_command(Options& options) {
  return run_with<CreateOptions>(options, create_from_place);
}

}  // namespace moorage::cli
