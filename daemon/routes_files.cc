#include <charconv>

#include "daemon/file_transfer.h"
#include "daemon/json_fields.h"
#include "daemon/routes.h"
#include "workspace/disk_room.h"

namespace moorage::daemon {
namespace {

using base::Code;
using base::Error;
using Lease = workspace::Workspaces::FilesLease;

using Access = workspace::Workspaces::Access;

Lease lease(Api& api, const Request& request, Access access = Access::write) {
  return api.workspaces.files(request.caller, request.parameter(0), access);
}

// Permission bits, octal as chmod takes them; setuid and its like are for no file of ours. 0: those
// that the file has, or 0644.
uint32_t mode_of(const Request& request) {
  const std::string text = request.query_text("mode").value_or("0");
  uint32_t mode = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, mode, 8);
  if (parsed.ec != std::errc() || parsed.ptr != end || mode > 0777) {
    throw Error(Code::invalid_argument,
                "the query parameter 'mode' is octal permission bits, 0 to 0777");
  }
  return mode;
}

Reply list(Api& api, const Request& request) {
  const std::string path = request.query_text("path").value_or("");
  return Reply::json(listing_json(path, lease(api, request, Access::read).files.list(path)));
}

Reply read(Api& api, const Request& request) {
  const std::string path = request.required_query("path");
  auto held = std::make_shared<const Lease>(lease(api, request, Access::read));
  uint64_t size = 0;
  base::Fd file = held->files.open_for_reading(path, &size);
  Reply reply;
  reply.content_type = kBytesType;
  reply.source = read_out(std::move(file), held, size);
  reply.source_bytes = size;
  return reply;
}

constexpr const char* kNoFile = "no file is written";

std::unique_ptr<BodySink> write(Api& api, const Request& request) {
  workspace::require_room(api.context.options, kNoFile);
  const std::string path = request.required_query("path");
  const uint32_t mode = mode_of(request);
  const UploadLimits limits{api.max_body_bytes, [&options = api.context.options](size_t bytes) {
                              workspace::require_room(options, kNoFile, bytes);
                            }};
  return write_workspace_file(lease(api, request), path, mode, limits);
}

Reply remove(Api& api, const Request& request) {
  const std::string path = request.required_query("path");
  lease(api, request).files.remove(path, request.query_flag("recursive"));
  return Reply::none();
}

Reply move(Api& api, const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  const std::string from = fields.required_bytes("from");
  const std::string to = fields.required_bytes("to");
  fields.finish();
  lease(api, request).files.move(from, to);
  return Reply::none();
}

Reply make_directory(Api& api, const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  const std::string path = fields.required_bytes("path");
  fields.finish();
  workspace::require_room(api.context.options, kNoFile);
  lease(api, request).files.make_directory(path);
  return Reply::none();
}

Reply make_symlink(Api& api, const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  const std::string path = fields.required_bytes("path");
  const std::string target = fields.required_bytes("target");
  fields.finish();
  workspace::require_room(api.context.options, kNoFile);
  lease(api, request).files.make_symlink(target, path);
  return Reply::none();
}

}  // namespace

void add_file_routes(Router& router, Api& api) {
  const auto verb = [&api](Reply (*run)(Api&, const Request&)) {
    return Handler([&api, run](const Request& request) { return run(api, request); });
  };
  const UploadHandler put = [&api](const Request& request) { return write(api, request); };

  router.add({.method = "GET",
              .pattern = "/v1/workspaces/{}/files",
              .handler = verb(list),
              .query = {"path"}});
  router.add({.method = "GET",
              .pattern = "/v1/workspaces/{}/file",
              .handler = verb(read),
              .query = {"path"}});
  router.add({.method = "PUT",
              .pattern = "/v1/workspaces/{}/file",
              .handler = put,
              .query = {"path", "mode"}});
  router.add({.method = "DELETE",
              .pattern = "/v1/workspaces/{}/file",
              .handler = verb(remove),
              .query = {"path", "recursive"},
              .lane = Lane::slow});
  router.add({.method = "POST", .pattern = "/v1/workspaces/{}/files/move", .handler = verb(move)});
  router.add({.method = "POST",
              .pattern = "/v1/workspaces/{}/files/mkdir",
              .handler = verb(make_directory)});
  router.add({.method = "POST",
              .pattern = "/v1/workspaces/{}/files/symlink",
              .handler = verb(make_symlink)});
}

}  // namespace moorage::daemon
