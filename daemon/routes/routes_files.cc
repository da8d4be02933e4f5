#include <sys/stat.h>

#include <algorithm>
#include <charconv>

#include "base/digest.h"
#include "base/log.h"
#include "daemon/routes/routes.h"
#include "workspace/access/keyed_request.h"
#include "workspace/context/free_space.h"

namespace moorage::daemon {
namespace {

using Lease = workspace::FilesLease;

Lease lease(Api& api, const Request& request, Right right) {
  return api.files.open(request.caller, request.parameter(0), right);
}

std::string entity_tag(const std::string& sha256_hex) { return "\"sha256-" + sha256_hex + "\""; }

// If-Match and If-None-Match of RFC 9110, over the contents of a file: its entity tag is
// "sha256-<64 hex digits>" of its bytes, so a client changes a file only if nobody changed it since
// that client read it. The comparison runs under the lock that serializes all changes through the
// API (workspace/verbs/files.h). A process inside the sandbox takes no lock: its writes between the
// comparison and the rename are lost, as with any two programs on one file.
class Preconditions {
 public:
  explicit Preconditions(const Request& request);  // invalid_argument if malformed
  // 412 if they do not hold for the file at `path`; nothing: continue.
  std::optional<Reply> unmet(const layers::TreeFiles& files, const std::string& path) const;

 private:
  struct Tags {
    bool given = false;
    bool any = false;  // "*"
    std::vector<std::string> list;
    bool include(const std::optional<std::string>& present) const;
  };
  static Tags parse(const std::string& header, const char* name);

  Tags match_;
  Tags none_match_;
};

bool Preconditions::Tags::include(const std::optional<std::string>& present) const {
  if (!present) return false;
  return any || std::find(list.begin(), list.end(), *present) != list.end();
}

Preconditions::Tags Preconditions::parse(const std::string& header, const char* name) {
  Tags tags;
  tags.given = !header.empty();
  tags.any = header == "*";
  if (!tags.given || tags.any) return tags;
  const auto refuse = [name] {
    throw Error(Code::invalid_argument,
                std::string(name) + " must be * or entity tags, \"sha256-<64 hex digits>\"",
                "GET the file with hash=1: its ETag is such a tag");
  };
  for (size_t at = 0; at <= header.size();) {
    const size_t end = std::min(header.find(',', at), header.size());
    std::string tag = header.substr(at, end - at);
    tag.erase(0, std::min(tag.find_first_not_of(" \t"), tag.size()));
    tag.erase(tag.find_last_not_of(" \t") + 1);
    constexpr size_t kTagBytes = 2 + 7 + 64;
    if (tag.size() != kTagBytes || !tag.starts_with("\"sha256-") || !tag.ends_with('"') ||
        tag.substr(8, 64).find_first_not_of("0123456789abcdef") != std::string::npos) {
      refuse();
    }
    tags.list.push_back(std::move(tag));
    at = end + 1;
  }
  return tags;
}

Preconditions::Preconditions(const Request& request)
    : match_(parse(request.if_match, "If-Match")),
      none_match_(parse(request.if_none_match, "If-None-Match")) {}

std::optional<Reply> Preconditions::unmet(const layers::TreeFiles& files,
                                          const std::string& path) const {
  if (!match_.given && !none_match_.given) return std::nullopt;
  const auto hash = files.content_hash(path);
  std::optional<std::string> present;
  if (hash) present = entity_tag(*hash);
  const bool holds = (!match_.given || match_.include(present)) && !none_match_.include(present);
  if (holds) return std::nullopt;
  const Error refused(Code::conflict,
                      path + " fails the condition: " +
                          (present ? "its tag is now " + *present : "it does not exist"),
                      "nothing was changed; read the file again and redo your change");
  Reply reply = error_reply(refused);
  reply.status = 412;
  if (present) reply.headers.emplace_back("ETag", *present);
  return reply;
}

// Joins a request's key to a change of a tree, before the change. A tree has no transaction, so a
// repeat after a crash checks the tree for the change. On a full disk the change proceeds without
// this, because a change that frees space must work.
void join_to_tree(state_db::Store& store, const workspace::Caller& caller) {
  try {
    workspace::join_key(store, caller, "tree");
  } catch (const Error& error) {
    if (error.code() != Code::resource_exhausted) throw;
    base::log(base::LogLevel::warning, "http.key_not_joined", {{"error", error.message()}});
  }
}

// Runs `work` on the files under the lock that serializes changes through the API, while the caller
// keeps the lease, and only if `path` meets the request's conditions. `is_done` checks in the files
// whether an earlier request with the same key took effect before the daemon died.
struct Change {
  std::string path;
  std::vector<std::string> also{};  // other paths that change
  std::function<void(const layers::TreeFiles&)> work;
  std::function<bool(const layers::TreeFiles&)> is_done;
};

Reply changed(Api& api, const Request& request, const Change& change) {
  const Preconditions conditions(request);
  const Lease held = lease(api, request, Right::write);
  std::vector<std::string> paths = change.also;
  paths.push_back(change.path);
  auto guard = api.files.change(request.caller, held, paths);
  if (workspace::has_begun(request.caller) && change.is_done(held.files)) return Reply::none();
  if (auto refused = conditions.unmet(held.files, change.path)) return std::move(*refused);
  join_to_tree(api.context.store, request.caller);
  change.work(held.files);
  api.files.finish(std::move(guard));
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

// Permission bits, octal as chmod takes them; setuid, setgid and sticky are refused.
std::optional<uint32_t> mode_of(const Request& request) {
  const auto text = request.query_text("mode");
  if (!text) return std::nullopt;
  uint32_t mode = 0;
  const char* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, mode, 8);
  if (parsed.ec != std::errc() || parsed.ptr != end || mode > 0777) {
    throw Error(Code::invalid_argument,
                "the query parameter 'mode' must be octal permission bits from 0 to 0777");
  }
  return mode;
}

// Nanoseconds since 1970, also before it.
std::optional<int64_t> modified_of(const Request& request) {
  const auto text = request.query_text("mtime_ns");
  if (!text) return std::nullopt;
  int64_t ns = 0;
  const char* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, ns);
  if (parsed.ec == std::errc() && parsed.ptr == end) return ns;
  throw Error(Code::invalid_argument,
              "the query parameter 'mtime_ns' must be nanoseconds since 1970");
}

std::optional<int64_t> modified_in(JsonFields& fields) {
  return fields.whole("mtime_ns", INT64_MIN, INT64_MAX);
}

Reply list(Api& api, const Request& request) {
  const std::string path = request.query_text("path").value_or("");
  return Reply::json(listing_json(path, lease(api, request, Right::read).files.list(path)));
}

// The first `size` bytes of a file. `keep` stays alive during the read (a lease on the mount).
class FileSource : public BodySource {
 public:
  FileSource(base::Fd file, std::shared_ptr<const void> keep, uint64_t size)
      : keep_(std::move(keep)), file_(std::move(file)), size_(size) {}
  // The file may change while it is read: growth is cut off; a shrunk file ends short, and the
  // reply's writer notices that the length differs from the head.
  Step read() override {
    const size_t wanted = std::min<uint64_t>(kPieceBytes, size_ - offset_);
    Step step{base::read_at(file_.get(), wanted, offset_), Next::more, {}};
    offset_ += step.bytes.size();
    if (offset_ == size_ || step.bytes.size() < wanted) step.next = Next::end;
    return step;
  }

 private:
  std::shared_ptr<const void> keep_;
  base::Fd file_;
  uint64_t size_;
  uint64_t offset_ = 0;
};

Reply read(Api& api, const Request& request) {
  const std::string path = request.required_query("path");
  auto held = std::make_shared<const Lease>(lease(api, request, Right::read));
  uint64_t size = 0;
  base::Fd file = held->files.open_for_reading(path, &size);
  std::optional<std::string> hash;
  if (request.query_flag("hash")) hash = layers::hash_of_file(file.get(), path);
  Reply reply =
      Reply::stream(std::make_unique<FileSource>(std::move(file), held, size), kBytesType);
  if (hash) reply.headers.emplace_back("ETag", entity_tag(*hash));
  reply.source_bytes = size;
  return reply;
}

Reply objects(Api& api, const Request& request) {
  base::Fd pack = api.files.objects(request.caller, request.parameter(0));
  struct stat status {};
  base::check(::fstat(pack.get(), &status), "inspect the pack");
  const auto size = static_cast<uint64_t>(status.st_size);
  Reply reply =
      Reply::stream(std::make_unique<FileSource>(std::move(pack), nullptr, size), kBytesType);
  reply.source_bytes = size;
  return reply;
}

constexpr const char* kNoFile = "cannot write the file";

// Answers once the file is durable under its name; before that nothing is visible. Checks the
// caller's right to write before the body, and again when the file gets its name.
class WorkspaceFileSink : public BodySink {
 public:
  WorkspaceFileSink(Api& api, const Request& request, const std::string& path,
                    std::optional<uint32_t> mode)
      : api_(api),
        caller_(request.caller),
        lease_(lease(api, request, Right::write)),
        path_(path),
        modified_ns_(modified_of(request)),
        conditions_(request),
        writer_(lease_.files.begin_write(path_, mode)) {}
  Taken write(std::string_view piece) override {
    bytes_ += piece.size();
    check_body_size(bytes_, api_.context.options);
    workspace::require_room(api_.context.options, kNoFile, piece.size());
    api_.quotas.require_room(lease_.row, piece.size());
    writer_.write(piece);
    hash_.add(piece);
    return Taken::all;
  }
  Reply finish() override {
    if (modified_ns_) writer_.set_modified(*modified_ns_);
    writer_.sync();
    const std::string hash = base::to_hex(hash_.raw());
    auto guard = api_.files.change(caller_, lease_, {path_});
    if (!workspace::has_begun(caller_) || lease_.files.content_hash(path_) != hash) {
      if (auto refused = conditions_.unmet(lease_.files, path_)) return std::move(*refused);
      join_to_tree(api_.context.store, caller_);
      writer_.commit();
    }
    api_.files.finish(std::move(guard));
    Reply reply = Reply::json(file_json(path_, lease_.files.stat(path_), hash));
    reply.headers.emplace_back("ETag", entity_tag(hash));
    return reply;
  }

 private:
  Api& api_;
  const workspace::Caller caller_;
  Lease lease_;
  const std::string path_;
  const std::optional<int64_t> modified_ns_;
  const Preconditions conditions_;
  layers::TreeFiles::Writer writer_;
  base::Sha256 hash_;
  uint64_t bytes_ = 0;
};

std::unique_ptr<BodySink> write(Api& api, const Request& request) {
  workspace::require_room(api.context.options, kNoFile);
  const std::string path = request.required_query("path");
  const auto mode = mode_of(request);
  const auto row =
      workspace::find_workspace(api.store, request.caller, request.parameter(0), Right::write);
  api.quotas.require_room(row, 0);
  return std::make_unique<WorkspaceFileSink>(api, request, path, mode);
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
       .also = {to},
       .work = [&](const auto& files) { files.move(from, to); },
       .is_done =
           [&](const auto& files) { return !entry_of(files, from) && entry_of(files, to); }});
}

Reply make_directory(Api& api, const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  const std::string path = fields.required_bytes("path");
  layers::TreeFiles::DirectoryState state;
  if (const auto mode = fields.whole("mode", 0, 0777)) state.mode = static_cast<uint32_t>(*mode);
  state.modified_ns = modified_in(fields);
  fields.finish();
  workspace::require_room(api.context.options, kNoFile);
  return changed(api, request,
                 {.path = path,
                  .work =
                      [&](const auto& files) {
                        files.make_directory(path);
                        files.set_directory(path, state);
                      },
                  .is_done = [](const auto&) { return false; }});  // a repeat changes nothing
}

Reply make_symlink(Api& api, const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  const std::string path = fields.required_bytes("path");
  const std::string target = fields.required_bytes("target");
  const std::optional<int64_t> modified_ns = modified_in(fields);
  fields.finish();
  workspace::require_room(api.context.options, kNoFile);
  return changed(api, request,
                 {.path = path,
                  .work = [&](const auto& files) { files.make_symlink(target, path, modified_ns); },
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
  routes.add("GET /v1/workspaces/{}/objects", Right::read, objects, {.lane = Lane::slow});
  routes.add("GET /v1/workspaces/{}/file", Right::read, read,
             {.query = {"path", "hash"}, .lane = Lane::files});
  routes.add("PUT /v1/workspaces/{}/file", Right::write, write,
             {.query = {"path", "mode", "mtime_ns"},
              .lane = Lane::files,
              .keep = Keep::joined,
              .conditional = true});
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
