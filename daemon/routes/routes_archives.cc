// Archiving, unarchiving, export and import of workspaces. An archive is a stream both ways: it is
// never held in memory, and a slow client holds no thread.
#include "daemon/http/pipe_source.h"
#include "daemon/json/json_fields.h"
#include "daemon/routes/routes.h"
#include "workspace/context/metrics.h"

namespace moorage::daemon {
namespace {

using base::ByteSpool;
using base::Code;
using base::Error;
using workspace::Archives;
using workspace::Imports;
using workspace::Progress;
using workspace::Right;
using workspace::WithSnapshots;
using workspace::WorkspaceView;
using Counted = workspace::Verb;

constexpr std::chrono::milliseconds kSlice{1000};  // then other work gets the thread

Reply answer(const WorkspaceView& view, int status = 200) {
  Reply reply = Reply::json(workspace_json(view), status);
  reply.subject = view.row.id.str();
  return reply;
}

class ImportSink : public BodySink {
 public:
  ImportSink(Api& api, Imports::Import import, uint64_t max_bytes)
      : api_(api), import_(std::move(import)), max_bytes_(max_bytes) {}
  ~ImportSink() override {
    if (!finished_) import_.pipe->fail(Error(Code::unavailable, "the client left before the end"));
  }
  Taken write(std::string_view piece) override {
    if (taken_ == 0) bytes_ += piece.size();
    if (bytes_ > max_bytes_) {
      throw Error(Code::invalid_argument,
                  "the archive is larger than " + std::to_string(max_bytes_) + " bytes",
                  "the limit is the setting archive.import_max_bytes");
    }
    try {
      taken_ += import_.pipe->write_some(piece.substr(taken_), kSlice);
    } catch (const Error&) {  // the import has failed already; get() throws its error
      close();
      import_.made.get();
      throw;
    }
    if (taken_ < piece.size()) return Taken::ask_again;
    taken_ = 0;
    return Taken::all;
  }
  Reply finish() override {
    close();
    return answer(api_.context.metrics.counted(Counted::import, [this] { return import_.made.get(); }),
                  201);
  }

 private:
  void close() {
    finished_ = true;
    import_.pipe->finish();
  }
  Api& api_;
  Imports::Import import_;
  const uint64_t max_bytes_;
  uint64_t bytes_ = 0;
  size_t taken_ = 0;  // of the current piece
  bool finished_ = false;
};

Reply export_workspace(Api& api, const Request& request) {
  const bool without = request.query_flag("without_snapshots");
  auto made = api.context.metrics.counted(Counted::export_, [&] {
    return api.exports.begin(request.caller, request.parameter(0),
                             without ? WithSnapshots::no : WithSnapshots::yes);
  });
  Reply reply;
  reply.content_type = kBytesType;
  // What the receiver needs to know in advance.
  reply.headers.emplace_back("Moorage-Snapshots", std::to_string(made.snapshots));
  if (made.image != "host") {
    reply.headers.emplace_back("Moorage-Image", made.image);
    reply.headers.emplace_back("Moorage-Image-Id", made.identity.id);
    reply.headers.emplace_back("Moorage-Image-Source", made.identity.source);
  }
  reply.source = std::make_unique<PipeSource<base::ByteSpool>>(std::move(made.stream));
  return reply;
}

}  // namespace

void add_archive_routes(Router& router, Api& api) {
  using Verb =
      WorkspaceView (Archives::*)(const workspace::Caller&, const std::string&, const Progress&);
  const auto verb = [&api](Verb run, Counted counted) {
    return LongHandler([&api, run, counted](const Request& request, const Progress& progress) {
      JsonFields::parse(request.body).finish();
      return answer(api.context.metrics.counted(counted, [&] {
        return (api.archives.*run)(request.caller, request.parameter(0), progress);
      }));
    });
  };
  const auto resumed = [&api](const Request& request, const std::string& subject) {
    return answer(api.archives.resume(request.caller, subject));
  };
  const UploadHandler import = [&api](const Request& request) {
    return std::make_unique<ImportSink>(
        api, api.imports.begin(request.caller, request.query_text("name").value_or("")),
        api.context.options.import_max_bytes);
  };
  const Handler to_elsewhere = [&api](const Request& request) {
    return export_workspace(api, request);
  };
  router.add({.method = "POST",
              .pattern = "/v1/workspaces/import",
              .access = Right::none,
              .handler = import,
              .query = {"name"},
              .lane = Lane::slow,
              .keep = Keep::joined,
              .resume = [&api](const Request& request, const std::string& subject) {
                const auto made = base::WorkspaceId::parse(subject).value();
                return answer(api.imports.resume(request.caller, made), 201);
              }});
  router.add({.method = "GET",
              .pattern = "/v1/workspaces/{}/export",
              .access = Right::read,
              .handler = to_elsewhere,
              .query = {"without_snapshots"},
              .lane = Lane::slow});
  router.add({.method = "POST",
              .pattern = "/v1/workspaces/{}/archive",
              .access = Right::write,
              .handler = verb(&Archives::archive, Counted::archive),
              .lane = Lane::slow,
              .keep = Keep::joined,
              .resume = resumed});
  router.add({.method = "POST",
              .pattern = "/v1/workspaces/{}/unarchive",
              .access = Right::write,
              .handler = verb(&Archives::unarchive, Counted::unarchive),
              .lane = Lane::slow,
              .keep = Keep::joined,
              .resume = resumed});
}

}  // namespace moorage::daemon
