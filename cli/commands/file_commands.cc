// `status`, `files`, `cat` and `cp`: the files of a workspace.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/log.h"
#include "base/os/fd.h"
#include "cli/client/remote_path.h"
#include "cli/commands.h"
#include "cli/local/tree_copy.h"
#include "cli/local/unkept.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

void print_status(Context& context, const std::string& name) {
  if (name.empty()) return list_workspaces(context);
  const auto json =
      context.parse_or_print(context.api().get(context.workspace_path(name, "/status")));
  if (!json) return;
  std::string text;
  for (const Json& file : json->items("files")) {
    text += label_line(file.text("change"), file.bytes("path"), 12);
  }
  if (text.empty()) text = " clean     no changes since the base\n";
  if (json->flag("truncated")) text += " ...       more changes not listed\n";
  context.print(text);
  note_moved_base(context, name);
}

struct FilesOptions {
  std::string name;
  std::string path;

  void declare(Options& options) {
    options.argument({"NAME", "", "The workspace"}, name);
    options.optional_argument({"PATH", "", "A directory; default: /workspace"}, path);
  }
};

std::string mode_text(const RemoteEntry& entry) {
  std::string text(10, '-');
  if (entry.type == "directory") text[0] = 'd';
  if (entry.type == "symlink") text[0] = 'l';
  constexpr std::string_view kLetters = "rwxrwxrwx";
  for (size_t i = 0; i < kLetters.size(); ++i) {
    if ((entry.mode >> (8 - i) & 1u) != 0) text[i + 1] = kLetters[i];
  }
  return text;
}

void list_files(Context& context, const FilesOptions& options) {
  // "files auth:src" equals "files auth src".
  const auto remote = parse_remote_path(options.name);
  RemoteFiles files(context, remote ? remote->workspace : options.name);
  const std::string path = remote && options.path.empty() ? remote->path : options.path;
  if (context.json) return context.print_json(files.list_json(path));
  const auto entries = files.list(path);
  if (!entries) {
    throw Error(Code::invalid_argument, path + " is not a directory",
                "moorage cat " + options.name + ":" + path);
  }
  if (entries->empty()) return context.print("empty\n");
  const int64_t now_ms = base::system_clock().wall_ms();
  Table table({"MODE", right("SIZE"), right("AGE"), shrinks("NAME")});
  for (const RemoteEntry& entry : *entries) {
    const auto at = parse_utc(entry.mtime_at);
    std::string name = entry.name;
    if (entry.type == "directory") name += "/";
    if (entry.type == "symlink") name += " -> " + entry.target;
    table.add({mode_text(entry), entry.type == "file" ? format_size(entry.size_bytes) : "-",
               at ? format_age(now_ms - *at) : "-", name});
  }
  context.print_table(table);
}

bool has_directory(RemoteFiles& files, const std::string& path) {
  if (path.empty()) return true;
  try {
    return files.list(path).has_value();
  } catch (const Error& error) {
    if (error.code() == Code::not_found) return false;
    throw;
  }
}

void print_contents(Context& context, const RemotePath& from) {
  RemoteFiles files(context, from.workspace);
  try {
    files.read(from.path, [&context](std::string_view bytes) { context.print(bytes); });
  } catch (const Error& error) {
    const bool may_be = error.code() == Code::conflict || error.code() == Code::invalid_argument;
    if (!may_be || !has_directory(files, from.path)) throw;
    throw Error(Code::invalid_argument, from.path + " is a directory",
                "moorage exec " + from.workspace + " -- " + join_command({"tar", "c", from.path}) +
                    " > FILE.tar");
  }
}

struct CatOptions {
  std::string file;
  std::string path;

  void declare(Options& options) {
    options.argument({"FILE", "", "NAME:PATH of the file, or NAME"}, file);
    options.optional_argument({"PATH", "", "The file, after NAME"}, path);
  }
};

void print_file(Context& context, const CatOptions& options) {
  // "cat auth README.md" equals "cat auth:README.md".
  const std::string text = options.path.empty() ? options.file : options.file + ":" + options.path;
  const auto remote = parse_remote_path(text);
  if (!remote) {
    throw Error(Code::invalid_argument, "'" + text + "' is not NAME:PATH",
                "moorage cat auth:README.md");
  }
  if (!options.path.empty() && options.file.find(':') != std::string::npos)
    throw Error(Code::invalid_argument, "moorage cat prints one file",
                "moorage cat " + options.file);
  if (remote->path.empty()) {
    throw Error(Code::invalid_argument, "no file after the colon in '" + text + "'",
                "moorage cat " + text + "README.md");
  }
  print_contents(context, *remote);
}

struct CopyOptions {
  std::string from;
  std::string to;

  void declare(Options& options) {
    options.argument({"FROM", "", "A local path, NAME:PATH, or - for standard input"}, from);
    options.argument({"TO", "", "NAME:PATH, a local path, or - for standard output"}, to);
    for (const char* name : {"-r", "-R", "-a", "-p"}) options.without_effect(name);  // always so
  }
};

// The last name of a path; "" when it has none ("", "/", "..").
std::string last_name(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::string name = path.substr(path.rfind('/') + 1);
  return is_safe_name(name) ? name : "";
}

bool is_local_directory(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

bool is_remote_directory(RemoteFiles& files, const std::string& path) {
  return path.ends_with('/') || has_directory(files, path);
}

constexpr const char* kStream = "-";

// Standard output: the bytes of one file and nothing else.
void copy_to_stream(Context& context, const RemotePath& from) {
  if (last_name(from.path).empty()) {
    throw Error(Code::invalid_argument, "only one file can be copied to standard output",
                "moorage cp " + from.workspace + ":FILE -");
  }
  print_contents(context, from);
}

CopyTally copy_from_stream(Context& context, const RemotePath& to) {
  RemoteFiles files(context, to.workspace);
  if (is_remote_directory(files, to.path)) {
    throw Error(
        Code::invalid_argument,
        "standard input has no name, and " + to.workspace + ":" + to.path + " is a directory",
        "name the file: moorage cp - " + to.workspace + ":" + join_path(to.path, "FILE"));
  }
  CopyTally tally{.files = 1};
  files.write(to.path, std::nullopt, [&tally](char* buffer, size_t size) {
    ssize_t got = 0;
    do {
      got = ::read(STDIN_FILENO, buffer, size);
    } while (got < 0 && errno == EINTR);
    tally.bytes += static_cast<uint64_t>(base::check(got, "read standard input"));
    return static_cast<size_t>(got);
  });
  return tally;
}

CopyTally copy_from(Context& context, const RemotePath& from, std::string to) {
  RemoteFiles files(context, from.workspace);
  // Like cp -r: into an existing directory, otherwise to the new name.
  if (is_local_directory(to)) to = join_path(to, last_name(from.path));
  return copy_out(files, from.path, to);
}

CopyTally copy_to(Context& context, const std::string& from, const RemotePath& to) {
  RemoteFiles files(context, to.workspace);
  std::string path = to.path;
  if (is_remote_directory(files, path)) path = join_path(path, last_name(from));
  try {
    return copy_in(files, from, path);
  } catch (const Error& error) {
    const std::string parent = path.substr(0, path.rfind('/') + 1);
    if (error.code() != Code::not_found || has_directory(files, parent)) throw;
    throw Error(Code::not_found, "no directory " + parent + " in " + to.workspace,
                "moorage exec " + to.workspace + " -- " + join_command({"mkdir", "-p", parent}));
  }
}

void note_left_out(Context& context, const CopyTally& tally) {
  if (tally.repositories > 0) {
    context.note(
        ".git was copied without its configuration, hooks and index, which could run programs "
        "here: nothing is staged");
  }
  if (tally.incomplete > 0) {
    context.note(count_of(tally.incomplete, "nested repository") +
                 " without the objects borrowed inside: copy " +
                 (tally.incomplete == 1 ? "it" : "them") + " alone");
  }
  if (tally.without_index > 0) {
    context.note(count_of(tally.without_index, "repository") +
                 " without an index: HEAD cannot be read; see: git fsck");
  }
  if (tally.git_links > 0) {
    context.note(count_of(tally.git_links, ".git file") +
                 " left out: worktrees and submodules lead to places in the sandbox");
  }
  if (tally.skipped > 0) {
    context.note(count_of(tally.skipped, "entry") + " skipped: devices, sockets or pipes");
  }
  if (!tally.special_modes.empty()) {
    context.note("copied without setuid, setgid and sticky bits: " + some_of(tally.special_modes));
  }
}

void refuse_places(const CopyOptions& options) {
  const auto from = parse_remote_path(options.from), to = parse_remote_path(options.to);
  if (!from) {
    throw Error(Code::invalid_argument, "one path must be NAME:PATH, the other a local path",
                "a copy of a workspace: moorage fork " + join_command({options.from, options.to}));
  }
  if (from->workspace != to->workspace) {
    throw Error(Code::invalid_argument,
                "both paths are in workspaces: " + from->workspace + " and " + to->workspace,
                "copy to a local path first; put ./ before a local name with a colon");
  }
  const auto named = [](const std::string& path) { return path.empty() ? "." : path; };
  throw Error(Code::invalid_argument, "both paths are in " + from->workspace,
              "copy inside: moorage exec " + from->workspace + " -- " +
                  join_command({"cp", "-r", named(from->path), named(to->path)}));
}

void copy(Context& context, const CopyOptions& options) {
  const auto from = parse_remote_path(options.from), to = parse_remote_path(options.to);
  if (from.has_value() == to.has_value()) refuse_places(options);
  if (from && options.to == kStream) return copy_to_stream(context, *from);
  const CopyTally tally = from                      ? copy_from(context, *from, options.to)
                          : options.from == kStream ? copy_from_stream(context, *to)
                                                    : copy_to(context, options.from, *to);
  if (tally.skipped > 0 && tally.files + tally.directories + tally.links == 0) {
    throw Error(Code::invalid_argument,
                "nothing copied: " + options.from + " is a device, socket or pipe");
  }
  if (context.json) {
    return context.print_json(
        JsonObject()
            .add("files", tally.files)
            .add("directories", tally.directories)
            .add("links", tally.links)
            .add("skipped", tally.skipped)
            .add("repositories", tally.repositories)
            .add("incomplete_repositories", tally.incomplete)
            .add("git_links", tally.git_links)
            .add("special_modes", static_cast<int64_t>(tally.special_modes.size()))
            .add("bytes", static_cast<int64_t>(tally.bytes)));
  }
  std::string text = count_of(tally.files, "file") + ", " + format_size(tally.bytes);
  if (tally.links > 0) text += ", " + count_of(tally.links, "link");
  context.print_label("copied", text);
  note_left_out(context, tally);
}

}  // namespace

Action status_command(Options& options) {
  auto name = std::make_shared<std::string>();
  options.optional_argument({"NAME", "", "The workspace; default: list all"}, *name);
  options.refused("--ignored", false,
                  Error(Code::invalid_argument, "ignored files do not count as changes",
                        "git inside lists them: moorage exec NAME -- git status --ignored"));
  return run_with(name, print_status);
}

Action files_command(Options& options) { return run_with<FilesOptions>(options, list_files); }

Action cat_command(Options& options) { return run_with<CatOptions>(options, print_file); }

Action cp_command(Options& options) { return run_with<CopyOptions>(options, copy); }

}  // namespace moorage::cli
