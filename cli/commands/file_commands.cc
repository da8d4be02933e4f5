// `files` and `cat`.
#include "base/clock.h"
#include "base/error.h"
#include "cli/client/remote_path.h"
#include "cli/commands.h"
#include "cli/output/text.h"

namespace moorage::cli {
namespace {

struct FilesOptions {
  std::string name;
  std::string path;
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

int list_files(Context& context, const FilesOptions& options) {
  // "files auth:src" equals "files auth src".
  const auto remote = parse_remote_path(options.name);
  RemoteFiles files(context, remote ? remote->workspace : options.name);
  const std::string path = remote && options.path.empty() ? remote->path : options.path;
  if (context.json) {
    context.print_json(files.list_json(path));
    return 0;
  }
  const auto entries = files.list(path);
  if (!entries) {
    throw Error(Code::invalid_argument, path + " is not a directory",
                "moorage cat " + options.name + ":" + path);
  }
  if (entries->empty()) {
    context.print("empty\n");
    return 0;
  }
  const int64_t now_ms = base::system_clock().wall_ms();
  Table table({{"MODE"}, {"SIZE", true}, {"AGE", true}, {"NAME", false, true}});
  for (const RemoteEntry& entry : *entries) {
    const auto at = parse_utc(entry.mtime_at);
    std::string name = entry.name;
    if (entry.type == "directory") name += "/";
    if (entry.type == "symlink") name += " -> " + entry.target;
    table.add({mode_text(entry), entry.type == "file" ? format_size(entry.size_bytes) : "-",
               at ? format_age(now_ms - *at) : "-", name});
  }
  context.print_table(table);
  return 0;
}

int print_file(Context& context, const std::string& text) {
  const auto remote = parse_remote_path(text);
  if (!remote) {
    throw Error(Code::invalid_argument, "'" + text + "' is not NAME:PATH",
                "moorage cat auth:README.md");
  }
  if (remote->path.empty()) {
    throw Error(Code::invalid_argument, "no file after the colon in '" + text + "'",
                "moorage cat " + text + "README.md");
  }
  RemoteFiles(context, remote->workspace).read(remote->path, [&context](std::string_view bytes) {
    context.print(bytes);
  });
  return 0;
}

}  // namespace

Action files_command(Options& options) {
  auto files = std::make_shared<FilesOptions>();
  options.argument({"NAME", "", "The workspace"}, files->name);
  options.optional_argument({"PATH", "", "A directory; default: /workspace"}, files->path);
  return [files](Context& context) { return list_files(context, *files); };
}

Action cat_command(Options& options) {
  auto path = std::make_shared<std::string>();
  options.argument({"FILE", "", "NAME:PATH of the file"}, *path);
  return [path](Context& context) { return print_file(context, *path); };
}

}  // namespace moorage::cli
