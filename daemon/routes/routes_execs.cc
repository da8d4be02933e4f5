#include "base/error.h"
#include "base/log.h"
#include "daemon/json/json_object.h"
#include "daemon/routes/exec_output.h"
#include "daemon/routes/routes.h"

namespace moorage::daemon {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kMaxWaitMs = 3'600'000;
constexpr uint64_t kDefaultWaitMs = 60'000;
constexpr size_t kUsualList = 1000;
constexpr size_t kUsualHistory = 100;

base::ExecId exec_id(const Request& request) {
  const std::string& text = request.parameter(0);
  const auto id = base::ExecId::parse(text);
  if (!id)
    throw Error(Code::not_found, "there is no exec '" + text + "'",
                "an exec id looks like ex_N; moorage ps lists them");
  return *id;
}

std::pair<uint32_t, uint32_t> terminal_size(JsonFields& fields) {
  const auto columns = fields.whole("columns", 1, 10'000);
  const auto rows = fields.whole("rows", 1, 10'000);
  fields.finish();
  return {static_cast<uint32_t>(columns.value_or(80)), static_cast<uint32_t>(rows.value_or(24))};
}

base::GitIdentity git_author(JsonFields& fields) {
  base::GitIdentity author{fields.required_text("name"), fields.required_text("email")};
  fields.finish();
  return author;
}

workspace::ExecRequest exec_request(const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  workspace::ExecRequest exec;
  exec.argv = fields.byte_list("argv").value_or(std::vector<std::string>());
  exec.environment = fields.text_map("env").value_or(std::map<std::string, std::string>());
  exec.directory = fields.bytes("cwd").value_or(exec.directory);
  exec.user = fields.text("user").value_or(exec.user);
  if (auto terminal = fields.object("tty")) exec.terminal = terminal_size(*terminal);
  exec.input = fields.flag("stdin");
  exec.merged = fields.flag("merge_output");
  exec.timeout_ms = fields.whole("timeout_ms", 0, INT64_MAX).value_or(0);
  exec.sync = fields.flag("sync");
  if (auto author = fields.object("git_author")) exec.author = git_author(*author);
  exec.free_space = fields.flag("free_space");
  exec.idempotency_key = request.idempotency_key;
  fields.finish();
  return exec;
}

Reply stream_reply(std::unique_ptr<BodySource> source, const std::string& id,
                   std::string_view type) {
  Reply reply = Reply::stream(std::move(source), type, id);
  reply.headers.emplace_back("Moorage-Exec", id);
  return reply;
}

void put_warning(Reply& reply, const workspace::ExecView& view) {
  if (view.warning.empty()) return;
  std::string text = base::escape_for_message(view.warning);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) >= 0x7f) c = '?';  // headers are ASCII; see `show`
  }
  reply.headers.emplace_back("Moorage-Warning", std::move(text));
}

void put_gaps(Reply& reply, const std::vector<base::JournalReader::GapPlace>& gaps) {
  std::string text;
  for (const auto& gap : gaps) {
    if (!text.empty()) text += ", ";
    text += std::to_string(gap.offset) + "-" + std::to_string(gap.end);
  }
  if (!text.empty()) reply.headers.emplace_back("Moorage-Output-Gaps", std::move(text));
}

Reply start(Api& api, const Request& request) {
  const auto view = api.context.metrics.counted(Counted::exec, [&] {
    return api.execs.start(request.caller, request.parameter(0), exec_request(request));
  });
  const std::string id = view.row.id.str();
  if (request.accepts(kOutputType)) {
    OutputOptions options{.follow = true};
    options.notices = [&api, exec = view.row.id] { return api.sightings.notices(exec); };
    auto stream = stream_output(api.execs, request.caller, view.row.id, options);
    Reply reply = stream_reply(std::move(stream.source), id, kOutputType);
    put_warning(reply, view);
    return reply;
  }
  Reply reply = Reply::json(exec_json(view), 201, id);
  reply.headers.emplace_back("Moorage-Exec", id);
  put_warning(reply, view);
  return reply;
}

Reply output(Api& api, const Request& request) {
  const auto id = exec_id(request);
  OutputOptions options;
  options.offset = request.query_number("offset").value_or(0);
  options.tail_bytes = request.query_number("tail_bytes");
  options.follow = request.query_flag("follow");
  // A follower stops when the command ends, whatever the command left running.
  options.late = request.query_text("late") ? request.query_flag("late") : !options.follow;
  options.raw = request.query_flag("raw");
  const std::string stream = request.query_text("stream").value_or("all");
  if (stream != "all" && stream != "stdout" && stream != "stderr") {
    throw Error(Code::invalid_argument,
                "the query parameter 'stream' must be stdout, stderr or all");
  }
  if (stream != "all" && !options.raw) {
    throw Error(Code::invalid_argument, "the query parameter 'stream' needs raw=1");
  }
  options.standard_output = stream != "stderr";
  options.standard_error = stream != "stdout";
  options.notices = [&api, id] { return api.sightings.notices(id); };
  auto found = stream_output(api.execs, request.caller, id, options);
  Reply reply =
      stream_reply(std::move(found.source), id.str(), options.raw ? kBytesType : kOutputType);
  put_gaps(reply, found.gaps);
  return reply;
}

// The warden counts the input bytes; only a client that resumes needs the count.
Reply get(Api& api, const Request& request) {
  const auto view = api.execs.get(request.caller, exec_id(request));
  std::optional<uint64_t> accepted;
  if (view.row.request.input && view.row.state == state_db::ExecState::running) {
    try {
      accepted = api.execs.input_accepted(request.caller, view.row.id);
    } catch (const Error&) {
      accepted.reset();  // it just ended, or its input is closed
    }
  }
  return Reply::json(exec_json(view, accepted));
}

Reply list(Api& api, const Request& request) {
  workspace::Execs::ListWanted wanted;
  if (!request.parameters.empty()) wanted.workspace = request.parameter(0);
  wanted.running_only = request.query_flag("running");
  wanted.before = request.query_id<base::ExecId>("before");
  wanted.limit = request.query_limit(kUsualList);
  return Reply::json(execs_json(api.execs.list(request.caller, wanted)));
}

Reply history(Api& api, const Request& request) {
  const auto before = request.query_id<base::ExecId>("before");
  const size_t limit = request.query_limit(kUsualHistory);
  return Reply::json(
      history_json(api.execs.history(request.caller, request.parameter(0), before, limit)));
}

Reply wait(Api& api, const Request& request) {
  const auto id = exec_id(request);
  const milliseconds timeout(
      request.query_number("timeout_ms", kMaxWaitMs).value_or(kDefaultWaitMs));
  return Reply::stream(wait_for_end(api.execs, request.caller, id, timeout), kJsonType);
}

// A command that does not read must not hold a thread: after this time the piece is queued again.
constexpr std::chrono::milliseconds kSlice{1000};

// Standard input of a running exec. Each piece carries its offset, so a client that lost its
// connection resumes at the command's position and no byte is delivered twice.
class InputSink : public BodySink {
 public:
  InputSink(workspace::Execs& execs, const Request& request)
      : execs_(execs),
        caller_(request.caller),
        offset_(request.query_number("offset").value_or(0)),
        close_after_(request.query_flag("close")),
        id_(exec_id(request)) {
    execs.check_input(caller_, id_);  // refuse before the body is read
  }

  Taken write(std::string_view piece) override {
    try {
      read_ = execs_.send_input(caller_, id_, offset_, piece, kSlice).read;
    } catch (const Error& error) {
      // The warden skips bytes it already has, so the whole piece can be sent again.
      if (error.code() != Code::deadline_exceeded && error.code() != Code::unknown_outcome) throw;
      return Taken::ask_again;
    }
    offset_ += piece.size();
    written_ = true;
    return Taken::all;
  }

  Reply finish() override {
    if (close_after_) execs_.close_input(caller_, id_);
    // Empty: a client asks how much the command has read.
    if (!written_ && !close_after_)
      read_ = execs_.send_input(caller_, id_, offset_, {}, kSlice).read;
    boost::json::object answer{{"accepted", offset_}};
    if (read_) answer["read"] = *read_;
    return Reply::json(text_of(answer), 200, id_.str());
  }
  bool patient() const override { return true; }

 private:
  workspace::Execs& execs_;
  workspace::Caller caller_;
  uint64_t offset_;         // input bytes before this body, and then in it
  const bool close_after_;  // a complete body also ends the input
  const base::ExecId id_;
  bool written_ = false;
  std::optional<uint64_t> read_;  // by the command
};

std::unique_ptr<BodySink> input(Api& api, const Request& request) {
  return std::make_unique<InputSink>(api.execs, request);
}

Reply send_signal(Api& api, const Request& request) {
  const auto name =
      body_of(request, [](JsonFields& fields) { return fields.required_text("signal"); });
  api.execs.send_signal(request.caller, exec_id(request), name);
  return Reply::none();
}

Reply cancel(Api& api, const Request& request) {
  JsonFields::parse(request.body).finish();
  api.execs.cancel(request.caller, exec_id(request));
  return Reply::none();
}

Reply resize(Api& api, const Request& request) {
  JsonFields fields = JsonFields::parse(request.body);
  const auto [columns, rows] = terminal_size(fields);
  api.execs.resize(request.caller, exec_id(request), columns, rows);
  return Reply::none();
}

}  // namespace

void add_exec_routes(Router& router, Api& api) {
  const RouteTable routes(router, api);
  routes.add("POST /v1/workspaces/{}/execs", Right::write, start,
             {.lane = Lane::exec, .keep = Keep::refusal});
  routes.add("GET /v1/workspaces/{}/execs", Right::read, list,
             {.query = {"running", "before", "limit"}});
  routes.add("GET /v1/workspaces/{}/history", Right::read, history,
             {.query = {"limit", "before"}, .lane = Lane::look});
  routes.add("GET /v1/execs", Right::read, list, {.query = {"running", "before", "limit"}});
  routes.add("GET /v1/execs/{}", Right::read, get);
  routes.add("GET /v1/execs/{}/wait", Right::read, wait, {.query = {"timeout_ms"}});
  routes.add("GET /v1/execs/{}/output", Right::read, output,
             {.query = {"offset", "follow", "tail_bytes", "raw", "stream", "late"}});
  routes.add("PUT /v1/execs/{}/stdin", Right::write, input,
             {.query = {"offset", "close"}, .lane = Lane::input, .keep = Keep::nothing});
  routes.add("POST /v1/execs/{}/signal", Right::write, send_signal);
  routes.add("POST /v1/execs/{}/cancel", Right::write, cancel,
             {.keep = Keep::joined, .resume = resumed_none});
  routes.add("POST /v1/execs/{}/resize", Right::write, resize);
}

}  // namespace moorage::daemon
