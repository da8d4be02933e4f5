#include "warden/process_service.h"

#include <signal.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/error.h"
#include "base/wire/protocol.h"
#include "warden/io/connect_protocol.h"
#include "warden/output/journal_sink.h"
#include "warden/output/stream_sink.h"
#include "warden/requests.h"

namespace moorage::warden {
namespace {

namespace json = boost::json;

constexpr size_t kMaxEnded = 64;
constexpr auto kEndedKept = std::chrono::seconds(30);
constexpr int64_t kMaxGraceMs = 600'000;
constexpr size_t kListedBytes = 256;  // per command: the daemon accepts 1 MiB for the whole list
constexpr std::string_view kPrefix = "/process.Process/";
constexpr std::string_view kJson = "application/json";

// With envd's field names.
std::string metrics_json(size_t running_execs) {
  struct sysinfo memory {};
  ::sysinfo(&memory);
  struct statvfs disk {};
  if (::statvfs("/workspace", &disk) != 0) ::statvfs("/", &disk);
  const uint64_t unit = memory.mem_unit;
  return json::serialize(json::object{
      {"ts", ::time(nullptr)},
      {"cpu_count", ::sysconf(_SC_NPROCESSORS_ONLN)},
      {"mem_total", memory.totalram * unit},
      {"mem_used", (memory.totalram - memory.freeram - memory.bufferram) * unit},
      {"disk_total", uint64_t{disk.f_blocks} * disk.f_frsize},
      {"disk_used", uint64_t{disk.f_blocks - disk.f_bfree} * disk.f_frsize},
      {"processes", running_execs},
  });
}

}  // namespace

struct ProcessService::Entry {
  explicit Entry(Loop& loop) : retention(loop) {}
  std::unique_ptr<Exec> exec;
  StreamSink* stream = nullptr;  // the exec's sink, unless it writes a journal
  Timer retention;               // started when it is over
};

ProcessService::ProcessService(Loop& loop, SpawnContext context, int spool, ShutDown shut_down)
    : loop_(loop),
      context_(context),
      spool_(spool),
      shut_down_(std::move(shut_down)),
      late_(loop),
      sweep_(loop) {}

ProcessService::~ProcessService() = default;

void ProcessService::handle(const std::shared_ptr<Connection>& connection, HttpRequest&& request) {
  const bool stream =
      request.header("content-type").value_or("").starts_with("application/connect+json");
  try {
    if (request.method == "POST" && request.target.starts_with(kPrefix)) {
      handle_rpc(connection, request, std::string_view(request.target).substr(kPrefix.size()));
    } else {
      handle_plain(connection, request);
    }
  } catch (const Error& error) {
    if (!stream) return connection->respond(connect_status(error.code()), kJson, error_json(error));
    connection->begin_stream();
    connection->end_stream(end_of_stream_json(error));
  } catch (const std::exception& error) {  // bad_alloc and the like: affects only this request
    connection->respond(500, kJson, error_json(Error(Code::internal, error.what())));
  }
}

void ProcessService::handle_rpc(const std::shared_ptr<Connection>& connection, HttpRequest& request,
                                std::string_view method) {
  static constexpr std::pair<std::string_view, Unary> kUnary[] = {
      {"List", &ProcessService::list},
      {"Update", &ProcessService::update},
      {"SendInput", &ProcessService::send_input},
      {"CloseStdin", &ProcessService::close_stdin},
      {"SendSignal", &ProcessService::send_signal},
  };
  if (method == "Start") return start(connection, request);
  if (method == "Connect") return connect(connection, request);
  for (const auto& [name, call] : kUnary) {
    if (name == method) return (this->*call)(connection, parse_object(request.body));
  }
  throw Error(Code::unsupported,
              "process.Process/" + std::string(method.substr(0, 64)) + " is not implemented");
}

void ProcessService::handle_plain(const std::shared_ptr<Connection>& connection,
                                  const HttpRequest& request) {
  if (request.method == "GET" && request.target == "/health")
    return connection->respond(204, {}, {});
  if (request.method == "GET" && request.target == "/moorage/protocol") {
    return connection->respond(200, kJson,
                               json::serialize(json::object{{"oldest", base::kProtocols.oldest},
                                                            {"newest", base::kProtocols.newest},
                                                            {"release", base::kRelease}}));
  }
  if (request.method == "GET" && request.target == "/metrics") {
    return connection->respond(200, kJson, metrics_json(unfinished()));
  }
  if (request.method == "POST" && request.target == "/moorage/shutdown") {
    json::object body = parse_object(request.body);
    const json::value* grace = body.if_contains("grace_ms");
    int64_t grace_ms = grace && grace->is_int64() ? grace->get_int64() : 0;
    shutting_down_ = true;
    return shut_down_(std::chrono::milliseconds(std::clamp<int64_t>(grace_ms, 0, kMaxGraceMs)),
                      connection);
  }
  throw Error(Code::not_found, "unknown path");
}

void ProcessService::start(const std::shared_ptr<Connection>& connection, HttpRequest& request) {
  if (shutting_down_) throw Error(Code::unavailable, "the sandbox is stopping");
  if (unfinished() >= kMaxExecs) {
    throw Error(Code::resource_exhausted, "512 commands are running; wait for one to end");
  }
  StartRequest start = read_start_request(parse_object(only_envelope(request.body)), request);
  start.command.user.uid += context_.user_base;
  start.command.user.gid += context_.user_base;
  const std::string& tag = start.options.tag;
  for (const auto& entry : entries_) {
    if (!tag.empty() && entry->exec->tag() == tag && entry->exec->state() != Exec::State::over) {
      throw Error(Code::already_exists, "a command with this tag is already running");
    }
  }
  if (!start.spool) return launch(std::move(start), connection);
  start.journal = create_spool_file(spool_, tag);
  const std::string name = tag;
  try {
    launch(std::move(start), connection);
  } catch (...) {
    ::unlinkat(spool_, name.c_str(), 0);  // nothing ran: a repeat may
    throw;
  }
}

void ProcessService::launch(StartRequest start, const std::shared_ptr<Connection>& connection) {
  auto owned = std::make_unique<Entry>(loop_);
  Entry& entry = *owned;
  std::unique_ptr<OutputSink> sink;
  if (start.journal) {
    sink = std::make_unique<JournalSink>(loop_, std::move(start.journal), start.room);
  } else {
    auto stream = std::make_unique<StreamSink>(loop_);
    entry.stream = stream.get();
    sink = std::move(stream);
  }
  Exec::Events events;
  events.started = [&entry, weak = std::weak_ptr(connection)](uint32_t pid,
                                                              const StartFailure& failure) {
    if (entry.stream) {
      if (pid == 0) entry.stream->fail(Error(Code::invalid_argument, failure.text));
      return;
    }
    auto starter = weak.lock();
    if (!starter || starter->closed()) return;
    starter->begin_stream();
    starter->send_envelope(start_event(pid));
    starter->end_stream("{}");
  };
  events.over = [this, &entry] { exec_over(entry); };
  entry.exec = std::make_unique<Exec>(loop_, std::move(start.command), std::move(start.options),
                                      std::move(sink), late_, std::move(events));
  entry.exec->start(context_);
  entries_.push_back(std::move(owned));
  if (entry.stream) entry.stream->add_listener(connection, start.keepalive);
}

void ProcessService::connect(const std::shared_ptr<Connection>& connection, HttpRequest& request) {
  Entry& entry = find(parse_object(only_envelope(request.body)));
  if (!entry.stream)
    throw Error(Code::conflict, "this command writes to a journal; read the journal instead");
  entry.stream->add_listener(connection, keepalive_interval(request));
}

void ProcessService::list(const std::shared_ptr<Connection>& connection, const json::object&) {
  json::array processes;
  for (const auto& entry : entries_) {
    const Exec& exec = *entry->exec;
    if (exec.state() == Exec::State::over || exec.pid() == 0) continue;
    json::object config{{"cmd", exec.command().argv[0].substr(0, kListedBytes)}};
    json::object process{{"config", std::move(config)}, {"pid", exec.pid()}};
    if (!exec.tag().empty()) process["tag"] = exec.tag();
    processes.push_back(std::move(process));
  }
  connection->respond(200, kJson,
                      json::serialize(json::object{{"processes", std::move(processes)}}));
}

void ProcessService::update(const std::shared_ptr<Connection>& connection,
                            const json::object& body) {
  Entry& entry = find(body);
  if (body.contains("pty")) entry.exec->resize(read_terminal_size(member_object(body, "pty")));
  connection->respond(200, kJson, "{}");
}

void ProcessService::send_input(const std::shared_ptr<Connection>& connection,
                                const json::object& body) {
  Entry& entry = find(body);
  const json::object& input = member_object(body, "input");
  const json::value* bytes = input.if_contains("stdin");
  if (!bytes) bytes = input.if_contains("pty");
  if (!bytes || !bytes->is_string()) throw Error(Code::invalid_argument, "input.stdin is missing");
  entry.exec->send_input(
      read_offset(body), decode_base64(bytes->get_string()),
      [weak = std::weak_ptr(connection)](InputFate fate, uint64_t accepted, uint64_t read) {
        auto sender = weak.lock();
        if (!sender) return;
        if (fate == InputFate::taken) {
          return sender->respond(
              200, kJson,
              json::serialize(json::object{{"accepted", std::to_string(accepted)},
                                           {"read", std::to_string(read)}}));
        }
        Error error = fate == InputFate::over
                          ? Error(Code::not_found, "the command has ended")
                          : Error(Code::conflict, "the command's standard input is closed");
        sender->respond(connect_status(error.code()), kJson, error_json(error));
      });
}

void ProcessService::close_stdin(const std::shared_ptr<Connection>& connection,
                                 const json::object& body) {
  find(body).exec->close_input();
  connection->respond(200, kJson, "{}");
}

void ProcessService::send_signal(const std::shared_ptr<Connection>& connection,
                                 const json::object& body) {
  const json::value* wanted = body.if_contains("signal");
  std::string name;
  if (wanted && wanted->is_string()) name = std::string(wanted->get_string());
  if (wanted && wanted->is_int64()) name = std::to_string(wanted->get_int64());
  auto signal = signal_number(name);
  if (!signal) throw Error(Code::invalid_argument, "signal is missing or unknown");
  const json::value* tree = body.if_contains("tree");
  if (tree && tree->is_bool() && tree->get_bool()) {
    if (*signal != 9) throw Error(Code::invalid_argument, "\"tree\" requires SIGNAL_SIGKILL");
    if (!kill_left(body)) find(body).exec->cancel();
  } else {
    find(body).exec->send_signal(*signal);
  }
  connection->respond(200, kJson, "{}");
}

bool ProcessService::kill_left(const json::object& body) {
  const json::value* tag = member_object(body, "process").if_contains("tag");
  const auto left =
      tag && tag->is_string() ? left_.find(std::string(tag->get_string())) : left_.end();
  return left != left_.end() && ::kill(left->second, SIGUSR1) == 0;
}

ProcessService::Entry& ProcessService::find(const json::object& body) {
  const json::object& selector = member_object(body, "process");
  const json::value* pid = selector.if_contains("pid");
  const json::value* tag = selector.if_contains("tag");
  // The newest first: an ended exec is kept for a while, and its tag may be in use again.
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    const Exec& exec = *(*entry)->exec;
    if (pid && pid->is_int64() && exec.pid() != 0 && pid->get_int64() == exec.pid()) return **entry;
    if (tag && tag->is_string() && !exec.tag().empty() && exec.tag() == tag->get_string())
      return **entry;
  }
  throw Error(Code::not_found, "no such command is running");
}

void ProcessService::process_ended(pid_t pid, int status, const rusage& usage) {
  std::erase_if(left_, [pid](const auto& one) { return one.second == pid; });
  // An exec that ends here leaves entries_ at once: advance first.
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    Exec& exec = *(*entry++)->exec;
    exec.process_ended(pid, status, usage);
  }
}

bool ProcessService::recorded() const { return unfinished() == 0 && late_.empty(); }

size_t ProcessService::unfinished() const {
  return static_cast<size_t>(std::count_if(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry->exec->state() != Exec::State::over;
  }));
}

void ProcessService::exec_over(Entry& entry) {
  if (!entry.stream || entry.exec->pid() == 0) return remove(&entry);
  entry.retention.start(kEndedKept, [this, &entry] { remove(&entry); });
  keep_few_ended();
}

void ProcessService::remove(const Entry* entry) {
  auto found = std::find_if(entries_.begin(), entries_.end(),
                            [entry](const auto& owned) { return owned.get() == entry; });
  if (found == entries_.end()) return;
  const Exec& exec = *entry->exec;
  if (exec.subreaper() > 0 && !exec.tag().empty()) left_[exec.tag()] = exec.subreaper();
  removed_.push_back(std::move(*found));
  entries_.erase(found);
  sweep_.start(std::chrono::milliseconds(0), [this] { removed_.clear(); });
}

void ProcessService::keep_few_ended() {
  size_t ended = entries_.size() - unfinished();
  for (auto entry = entries_.begin(); entry != entries_.end() && ended > kMaxEnded;) {
    const Entry* candidate = (entry++)->get();
    if (candidate->exec->state() != Exec::State::over) continue;
    remove(candidate);
    --ended;
  }
}

}  // namespace moorage::warden
