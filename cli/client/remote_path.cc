#include "cli/client/remote_path.h"

#include <cstdio>

namespace moorage::cli {
namespace {

RemoteEntry entry_of(const Json& json) {
  RemoteEntry entry;
  entry.name = json.bytes("name");
  entry.type = json.text("type");
  entry.target = json.bytes("target");
  entry.size_bytes = static_cast<uint64_t>(json.number("size_bytes"));
  entry.mode = static_cast<uint32_t>(json.number("mode")) & 07777u;
  entry.mtime_at = json.text("mtime_at");
  entry.modified_ns = json.number("mtime_ns");
  return entry;
}

bool lies_in(std::string_view path, std::string_view directory) {
  return path.starts_with(directory) &&
         (path.size() == directory.size() || path[directory.size()] == '/');
}

std::string octal(uint32_t mode) {
  char text[16];
  std::snprintf(text, sizeof text, "%04o", mode & 07777u);
  return text;
}

}  // namespace

std::optional<RemotePath> parse_remote_path(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  const std::string_view name = text.substr(0, colon);
  if (name.find_first_of("/.") != std::string_view::npos) return std::nullopt;
  return RemotePath{std::string(name), std::string(text.substr(colon + 1))};
}

std::string join_path(const std::string& directory, const std::string& name) {
  if (directory.empty()) return name;
  return directory.ends_with('/') ? directory + name : directory + "/" + name;
}

bool is_safe_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

std::string RemoteFiles::target(const std::string& route, const std::string& path) const {
  return context_.workspace_path(workspace_, route + "?path=" + percent_encode(path, true));
}

std::string RemoteFiles::list_json(const std::string& path) {
  return context_.api().get(target("/files", path));
}

std::optional<std::vector<RemoteEntry>> RemoteFiles::list(const std::string& path) {
  Json json;
  try {
    json = Json::parse(list_json(path));
  } catch (const Error& error) {
    // Outside the workspace: pass on the daemon's refusal.
    const bool outside =
        path.starts_with('/') && !lies_in(path, "/workspace") && !lies_in(path, "/home/user");
    if (error.code() == Code::invalid_argument && !outside) return std::nullopt;
    throw;
  }
  std::vector<RemoteEntry> entries;
  for (const Json& item : json.items("entries")) entries.push_back(entry_of(item));
  if (json.flag("truncated")) {
    throw Error(Code::resource_exhausted, path + " has more entries than the daemon lists",
                "pack it inside: moorage exec " + workspace_ + " -- tar cf - DIR | tar xf -");
  }
  return entries;
}

void RemoteFiles::read(const std::string& path, const BodySink& sink) {
  context_.api().download(target("/file", path), sink);
}

void RemoteFiles::read_objects(const BodySink& sink) {
  context_.api().download(context_.workspace_path(workspace_, "/objects"), sink, kLongSilenceMs);
}

std::string RemoteFiles::origin() {
  const Json workspace = Json::parse(context_.api().get(context_.workspace_path(workspace_)));
  return workspace.text("repo.origin");
}

void RemoteFiles::write(const std::string& path, const std::optional<FileState>& state,
                        const BodySource& source) {
  std::string place = target("/file", path);
  if (state) {
    place += "&mode=" + octal(state->mode) + "&mtime_ns=" + std::to_string(state->modified_ns);
  }
  context_.api().upload("PUT", place, source);
}

void RemoteFiles::make_symlink(const std::string& path, const std::string& link_target,
                               int64_t modified_ns) {
  JsonObject body;
  body.add_bytes("path", path).add_bytes("target", link_target).add("mtime_ns", modified_ns);
  context_.api().send("POST", context_.workspace_path(workspace_, "/files/symlink"), body.str());
}

void RemoteFiles::make_directory(const std::string& path, const std::optional<FileState>& state) {
  JsonObject fields;
  fields.add_bytes("path", path);
  if (state) fields.add("mode", int64_t{state->mode}).add("mtime_ns", state->modified_ns);
  const std::string body = fields.str();
  try {
    context_.api().send("POST", context_.workspace_path(workspace_, "/files/mkdir"), body);
  } catch (const Error& error) {
    if (error.code() != Code::already_exists) throw;
  }
}

}  // namespace moorage::cli
