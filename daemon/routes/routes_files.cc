#include <charconv>

#include "daemon/http/preconditions.h"
#include "daemon/json/json_fields.h"
#include "daemon/routes/file_transfer.h"
#include "daemon/routes/routes.h"
#include "workspace/access/keyed_request.h"
#include "workspace/context/free_space.h"

namespace moorage::daemon {
namespace {

using base::Code;
using base::Error;
using Lease = workspace::FilesLease;

Lease lease(Api& api, const Request& request, Right right) {
  return api.workspaces.files(request.caller, request.parameter(0), right);
}

// Runs `work` on the files under the lock that serializes changes through the API, while the caller
// keeps the lease, and only if `path` meets the request's conditions. `is_done` checks in the files
// whether an earlier request with the same key took effect before the daemon died.
struct Change {
  std::string path;
  std::function<void(const layers::TreeFiles&)> work;
  std::function<bool(const layers::TreeFiles&)> is_done;
};

Reply changed(Api& api, const Request& request, const Change& change) {
  const Preconditions conditions(request);
  const Lease held = lease(api, request, Right::write);
  const auto guard = api.workspaces.change_files(request.caller, held.row);
  if (workspace::has_begun(request.caller) && change.is_done(held.files)) return Reply::none();
  if (auto refused = conditions.unmet(held.files, change.path)) return std::move(*refused);
  join_to_tree(api.context.store, request.caller);
  change.work(held.files);
  return Reply::none();
}

std::optional<layers::FileEntry> entry_of(const layers::TreeFiles& files, const std::string& path) {
  try {
    return files.stat(path);
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
    return std::nullopt;
  }
}

// Permission bits, octal as chmod takes them; setuid, setgid and sticky are refused. 0: keep the
// file's mode, or 0644 for a new file.
uint32_t mode_of(const Request& request) {
  const std::string text = request.query_text("mode").value_or("0");
  uint32_t mode = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, mode, 8);
  if (parsed.ec != std::errc() || parsed.ptr != end || mode > 0777) {
    throw Error(Code::invalid_argument,
                "the query parameter 'mode' must be octal permission bits from 0 to 0777");
  }
  return mode;
}

Reply list(Api& api, const Request& request) {
  const std::string path = request.query_text("path").value_or("");
  return Reply::json(listing_json(path, lease(api, request, Right::read).files.list(path)));
}

Reply read(Api& api, const Request& request) {
  const std::string path = request.required_query("path");
  auto held = std::make_shared<const Lease>(lease(api, request, Right::read));
  uint64_t size = 0;
  base::Fd file = held->files.open_for_reading(path, &size);
  Reply reply;
  if (request.query_flag("hash"))
    reply.headers.emplace_back("ETag", entity_tag(layers::hash_of_file(file.get(), path)));
  reply.content_type = kBytesType;
  reply.source = read_out(std::move(file), held, size);
  reply.source_bytes = size;
  return reply;
}

constexpr const char* kNoFile = "cannot write the file";

std::unique_ptr<BodySink> write(Api& api, const Request& request) {
  workspace::require_room(api.context.options, kNoFile);
  const std::string path = request.required_query("path");
  const uint32_t mode = mode_of(request);
  const auto row = api.workspaces.find(request.caller, request.parameter(0), Right::write);
  api.quotas.require_room(row, 0);
  const UploadLimits limits{api.context.options.upload_max_bytes, [&api, row](size_t bytes) {
                              workspace::require_room(api.context.options, kNoFile, bytes);
                              api.quotas.require_room(row, bytes);
                            }};
  return write_workspace_file(api.workspaces, api.context.store, request, path, mode, limits);
}

Reply remove(Api& api, const Request& request) {
  const std::string path = request.required_query("path");
  const bool recursive = request.query_flag("recursive");
  return changed(api, request,
                 {.path = path,
                  .work = [&](const auto& files) { files.remove(path, recursive); },
                  .is_done = [&](const auto& files) { return !entry_of(files, path); }});
}

Reply move(Api& api, const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  const std::string from = fields.required_bytes("from");
  const std::string to = fields.required_bytes("to");
  fields.finish();
  return changed(
      api, request,
      {.path = from,
       .work = [&](const auto& files) { files.move(from, to); },
       .is_done =
           [&](const auto& files) { return !entry_of(files, from) && entry_of(files, to); }});
}

Reply make_directory(Api& api, const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  const std::string path = fields.required_bytes("path");
  fields.finish();
  workspace::require_room(api.context.options, kNoFile);
  return changed(api, request,
                 {.path = path,
                  .work = [&](const auto& files) { files.make_directory(path); },
                  .is_done = [](const auto&) { return false; }});  // a repeat changes nothing
}

Reply make_symlink(Api& api, const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  const std::string path = fields.required_bytes("path");
  const std::string target = fields.required_bytes("target");
  fields.finish();
  workspace::require_room(api.context.options, kNoFile);
  return changed(api, request,
                 {.path = path,
                  .work = [&](const auto& files) { files.make_symlink(target, path); },
                  .is_done =
                      [&](const auto& files) {
                        const auto entry = entry_of(files, path);
                        return entry && entry->type == layers::FileType::symlink &&
                               entry->link_target == target;
                      }});
}

}  // namespace

void add_file_routes(Router& router, Api& api) {
  const RouteTable routes(router, api);
  routes.add("GET /v1/workspaces/{}/files", Right::read, list,
             {.query = {"path"}, .lane = Lane::files});
  routes.add("GET /v1/workspaces/{}/file", Right::read, read,
             {.query = {"path", "hash"}, .lane = Lane::files});
  routes.add(
      "PUT /v1/workspaces/{}/file", Right::write, write,
      {.query = {"path", "mode"}, .lane = Lane::files, .keep = Keep::joined, .conditional = true});
  routes.add("DELETE /v1/workspaces/{}/file", Right::write, remove,
             {.query = {"path", "recursive"},
              .lane = Lane::files,
              .keep = Keep::joined,
              .conditional = true});
  routes.add("POST /v1/workspaces/{}/files/move", Right::write, move,
             {.lane = Lane::files, .keep = Keep::joined, .conditional = true});
  routes.add("POST /v1/workspaces/{}/files/mkdir", Right::write, make_directory,
             {.lane = Lane::files, .keep = Keep::joined});
  routes.add("POST /v1/workspaces/{}/files/symlink", Right::write, make_symlink,
             {.lane = Lane::files, .keep = Keep::joined});
}

}  // namespace moorage::daemon
