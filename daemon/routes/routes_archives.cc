// Archiving, unarchiving, export and import of workspaces. An archive is a stream both ways: it is
// never held in memory, and a slow client holds no thread.
#include "daemon/http/pipe_source.h"
#include "daemon/routes/routes.h"

namespace moorage::daemon {
namespace {

using base::ByteSpool;
using workspace::Archives;
using workspace::Imports;
using workspace::Progress;
using workspace::WithSnapshots;

constexpr std::chrono::milliseconds kSlice{1000};  // then other work gets the thread

class ImportSink : public BodySink {
 public:
  ImportSink(Api& api, Imports::Import import, uint64_t max_bytes)
      : api_(api), import_(std::move(import)), max_bytes_(max_bytes) {}
  ~ImportSink() override {
    if (!finished_) import_.pipe->fail(Error(Code::unavailable, "the client sent only a part"));
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
    return workspace_reply(
        api_.context.metrics.counted(Counted::import, [this] { return import_.made.get(); }), 201);
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
  Reply reply =
      Reply::stream(std::make_unique<PipeSource<ByteSpool>>(std::move(made.stream)), kBytesType);
  // What the receiver needs to know in advance.
  reply.headers.emplace_back("Moorage-Snapshots", std::to_string(made.snapshots));
  if (made.image != "host") {
    reply.headers.emplace_back("Moorage-Image", made.image);
    reply.headers.emplace_back("Moorage-Image-Id", made.identity.id);
    reply.headers.emplace_back("Moorage-Image-Source", made.identity.source);
  }
  return reply;
}

std::unique_ptr<BodySink> import_workspace(Api& api, const Request& request) {
  return std::make_unique<ImportSink>(
      api, api.imports.begin(request.caller, request.query_text("name").value_or("")),
      api.context.options.import_max_bytes);
}

Reply resume_import(Api& api, const Request& request, const std::string& subject) {
  const auto made = base::WorkspaceId::parse(subject).value();
  return workspace_reply(api.views.made_before(request.caller, made, "imported"), 201);
}

template <auto verb, Counted counted>
Reply run(Api& api, const Request& request, const Progress& progress) {
  JsonFields::parse(request.body).finish();
  return run_counted(counted, api, request, api.archives, verb, progress);
}

Reply resume_move(Api& api, const Request& request, const std::string& subject) {
  return workspace_reply(api.archives.resume(request.caller, subject));
}

}  // namespace

void add_archive_routes(Router& router, Api& api) {
  const RouteTable routes(router, api);
  const RouteRules joined{.lane = Lane::slow, .keep = Keep::joined, .resume = resume_move};
  routes.add(
      "POST /v1/workspaces/import", Right::none, import_workspace,
      {.query = {"name"}, .lane = Lane::slow, .keep = Keep::joined, .resume = resume_import});
  routes.add("GET /v1/workspaces/{}/export", Right::read, export_workspace,
             {.query = {"without_snapshots"}, .lane = Lane::slow});
  routes.add("POST /v1/workspaces/{}/archive", Right::write,
             run<&Archives::archive, Counted::archive>, joined);
  routes.add("POST /v1/workspaces/{}/unarchive", Right::write,
             run<&Archives::unarchive, Counted::unarchive>, joined);
}

}  // namespace moorage::daemon
