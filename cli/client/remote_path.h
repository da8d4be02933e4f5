// "auth:src/main.cc": a path in a workspace, and its routes of the file API. Paths are bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/client/context.h"

namespace moorage::cli {

struct RemotePath {
  std::string workspace;
  std::string path;  // "" is /workspace; absolute paths are inside paths
};

// Nothing when the text does not start with "NAME:" ("./a:b" and "/a:b" are local).
std::optional<RemotePath> parse_remote_path(std::string_view text);

struct RemoteEntry {
  std::string name;
  std::string type;  // "file", "directory", "symlink", other
  std::string target;
  uint64_t size_bytes = 0;
  uint32_t mode = 0;
  std::string mtime_at;
  int64_t modified_ns = 0;
};

// What a copy keeps.
struct FileState {
  uint32_t mode = 0;
  int64_t modified_ns = 0;
};

std::string join_path(const std::string& directory, const std::string& name);
// A valid file name: not empty, not . or .., no slash. The sandbox chose it.
bool is_safe_name(std::string_view name);

class RemoteFiles {
 public:
  RemoteFiles(Context& context, std::string workspace)
      : context_(context), workspace_(std::move(workspace)) {}
  // Nothing when the path is not a directory; throws when the daemon cannot list it completely.
  std::optional<std::vector<RemoteEntry>> list(const std::string& path);
  std::string list_json(const std::string& path);
  void read(const std::string& path, const BodySink& sink);
  void read_objects(const BodySink& sink);  // of its repository, as a pack of git
  std::string origin();                     // the URL of its git's origin; empty: none
  // Without a state: for now, with the usual mode.
  void write(const std::string& path, const std::optional<FileState>& state,
             const BodySource& source);
  void make_symlink(const std::string& path, const std::string& target, int64_t modified_ns);
  void make_directory(const std::string& path,
                      const std::optional<FileState>& state = {});  // may exist already

 private:
  std::string target(const std::string& route, const std::string& path) const;
  Context& context_;
  const std::string workspace_;
};

}  // namespace moorage::cli
