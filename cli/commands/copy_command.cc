// `cp`: copies files and directories between here and a workspace, like cp -r.
#include <sys/stat.h>

#include "base/error.h"
#include "cli/client/remote_path.h"
#include "cli/commands.h"
#include "cli/local/tree_copy.h"
#include "cli/output/text.h"

namespace moorage::cli {
namespace {

struct CopyOptions {
  std::string from;
  std::string to;
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

bool has_directory(RemoteFiles& files, const std::string& path) {
  if (path.empty()) return true;
  try {
    return files.list(path).has_value();
  } catch (const Error& error) {
    if (error.code() == Code::not_found) return false;
    throw;
  }
}

bool is_remote_directory(RemoteFiles& files, const std::string& path) {
  return path.ends_with('/') || has_directory(files, path);
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

int copy(Context& context, const CopyOptions& options) {
  const auto from = parse_remote_path(options.from), to = parse_remote_path(options.to);
  if (from.has_value() == to.has_value()) {
    throw Error(Code::invalid_argument, "one path must be NAME:PATH, the other a local path",
                "put ./ before a local name with a colon");
  }
  const CopyTally tally =
      from ? copy_from(context, *from, options.to) : copy_to(context, options.from, *to);
  if (tally.skipped > 0 && tally.files + tally.directories + tally.links == 0) {
    throw Error(Code::invalid_argument,
                "nothing copied: " + options.from + " is a device, socket or pipe");
  }
  if (context.json) {
    context.print_json(JsonObject()
                           .add("files", tally.files)
                           .add("directories", tally.directories)
                           .add("links", tally.links)
                           .add("skipped", tally.skipped)
                           .add("bytes", static_cast<int64_t>(tally.bytes))
                           .str());
    return 0;
  }
  std::string text = count_of(tally.files, "file") + ", " + format_size(tally.bytes);
  if (tally.links > 0) text += ", " + count_of(tally.links, "link");
  context.print(label_line("copied", text));
  if (tally.skipped > 0) {
    context.note(count_of(tally.skipped, "entry") + " skipped: devices, sockets or pipes");
  }
  return 0;
}

}  // namespace

Action cp_command(Options& options) {
  auto paths = std::make_shared<CopyOptions>();
  options.argument({"FROM", "", "A local path, or NAME:PATH"}, paths->from);
  options.argument({"TO", "", "NAME:PATH, or a local path"}, paths->to);
  return [paths](Context& context) { return copy(context, *paths); };
}

}  // namespace moorage::cli
