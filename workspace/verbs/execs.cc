#include "workspace/verbs/execs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "backends/envd_client.h"
#include "base/crash_point.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/size_text.h"
#include "state_db/store.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/snapshots.h"
#include "workspace/access/keyed_request.h"
#include "workspace/context/free_space.h"
#include "workspace/context/metrics.h"

namespace moorage::workspace {
namespace {

MOORAGE_CRASH_POINT(before_intent, "exec.before_intent");
MOORAGE_CRASH_POINT(after_intent, "exec.after_intent");
MOORAGE_CRASH_POINT(after_start, "exec.after_start");

constexpr std::chrono::milliseconds kWardenDeadline{10'000};
constexpr int kStopsMet = 3;  // a start waits for at most this many stops in a row

// Every field that defines the command, length-prefixed so that no two requests share a text.
std::string request_hash(const ExecRequest& request) {
  std::string text;
  const auto add = [&](const std::string& part) {
    text += std::to_string(part.size()) + ":" + part;
  };
  for (const auto& argument : request.argv) add(argument);
  add("env");
  for (const auto& [key, value] : request.environment) {
    add(key);
    add(value);
  }
  add(request.directory);
  add(request.user);
  add(request.terminal ? "tty" : "");
  add(request.input ? "input" : "");
  add(std::to_string(request.timeout_ms));
  if (request.merged) add("merged");
  if (request.author) {
    add("author");
    add(request.author->name);
    add(request.author->email);
  }
  if (request.sync) add("sync");
  if (request.free_space) add("free_space");
  return base::sha256_hex(text);
}

state_db::NewExec record_of(const Caller& caller, base::WorkspaceId workspace,
                            const ExecRequest& request) {
  state_db::NewExec record;
  record.workspace = workspace;
  record.owner_uid = caller.uid;
  if (!request.idempotency_key.empty()) record.idempotency_key = request.idempotency_key;
  record.request_hash = request_hash(request);
  record.argv = request.argv;
  record.environment = request.environment;
  record.directory = request.directory;
  record.user = request.user;
  record.terminal = request.terminal.has_value();
  record.input = request.input;
  record.merged = request.merged;
  record.timeout_ms = request.timeout_ms;
  return record;
}

// Removing files needs no room, so these may run in the reserved space.
bool only_removes(const std::vector<std::string>& argv) {
  const std::string& program = argv.front();
  const std::string name = program.substr(program.rfind('/') + 1);
  return name == "rm" || name == "rmdir" || name == "unlink";
}

constexpr uint64_t kJournalLeast = 64 << 10;  // free disk space that a journal needs to grow

int signal_number(const std::string& name) {
  static const std::map<std::string, int> signals{
      {"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT},   {"KILL", SIGKILL},
      {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"TERM", SIGTERM},   {"STOP", SIGSTOP},
      {"CONT", SIGCONT}, {"TSTP", SIGTSTP}, {"WINCH", SIGWINCH}, {"ALRM", SIGALRM},
      {"PIPE", SIGPIPE}, {"ABRT", SIGABRT}, {"SEGV", SIGSEGV}};
  const std::string plain = name.starts_with("SIG") ? name.substr(3) : name;
  if (const auto found = signals.find(plain); found != signals.end()) return found->second;
  for (const auto& [known, number] : signals) {
    if (plain == std::to_string(number)) return number;
  }
  throw Error(Code::invalid_argument, "'" + name + "' is not a supported signal",
              "use INT, TERM, KILL, HUP, QUIT, USR1, USR2, STOP, CONT...");
}

[[noreturn]] void throw_over(const state_db::ExecRow& row) {
  throw Error(Code::conflict,
              row.id.str() + " has ended: " + std::string(state_db::state_name(row.state)));
}

[[noreturn]] void refuse_budget(const state_db::WorkspaceRow& row, const std::string& used,
                                const std::string& option) {
  throw Error(Code::resource_exhausted, row.name + " has used its budget: " + used,
              "raise it: moorage set " + row.name + " " + option);
}

void limit_time(state_db::NewExec& record, int64_t most_ms, const std::string& why) {
  if (record.timeout_ms > 0 && record.timeout_ms <= most_ms) return;
  record.timeout_ms = most_ms;
  record.time_limit = why;
}

std::shared_ptr<const LiveSandbox> sandbox_of(Context& context, const state_db::ExecRow& row) {
  if (row.state != state_db::ExecState::running) throw_over(row);
  auto running = context.live.by_sandbox(row.request.sandbox);
  if (!running) throw Error(Code::conflict, row.id.str() + ": its sandbox is stopping");
  return running;
}

}  // namespace

bool never_started(const state_db::ExecRow& exec) {
  return exec.state == state_db::ExecState::interrupted &&
         exec.outcome.category == state_db::ExecCategory::not_started;
}

ExecView Execs::start(const Caller& caller, const std::string& workspace,
                      const ExecRequest& request) {
  check_request(request);
  std::optional<state_db::GroupedReads> reads(context_.store);
  const auto row = find_workspace(context_.store, caller, workspace, Right::write);
  auto record = record_of(caller, row.id, request);
  if (auto view = repeat(caller, record)) return *std::move(view);
  const bool frees = request.free_space || only_removes(request.argv);
  if (!frees) {
    require_room(context_.options, "cannot start a command");
    limits_.require_within(row);
  }
  leases_.check(caller, row);
  if (record.timeout_ms == 0) record.timeout_ms = context_.options.default_timeout_ms;
  apply_budget(row, record);
  reads.reset();  // the steps below may remove the rest of a dead sandbox
  const auto use = context_.live.use(row.id);
  std::string warning;
  const auto snapshot = snapshot_before(row, frees, warning);
  // By id only: holding a dead sandbox would hold its mounts, and no new one could start.
  const auto before = context_.live.running_sandbox(row.id);
  const auto [created, running, began] = record_intent(caller, row, record, snapshot, reads);
  if (created.existed) {
    require_launched(caller, created.id);
    return get(caller, created.id);
  }
  after_intent.pass();
  launch(created.id, row, *running, {request.terminal, request.sync, request.author});
  after_start.pass();
  context_.metrics.exec_start.observe_since(began);
  base::log(base::LogLevel::info, "exec.started",
            {{"ws", row.id},
             {"sb", running->sandbox},
             {"ex", created.id},
             {"argv0", request.argv.front()}});
  if (before != running->sandbox) {
    const auto integrity = state_db::IntegrityTable(context_.store).get(row.id);
    if (integrity.state == state_db::IntegrityState::changed_outside) {
      if (!warning.empty()) warning += "; ";
      warning += row.name + " was changed outside Moorage: " + integrity.reason;
    }
  }
  auto started = get(caller, created.id);
  started.warning = std::move(warning);
  return started;
}

// The commit that makes the record checks the count again.
void Execs::apply_budget(const state_db::WorkspaceRow& row, state_db::NewExec& record) {
  const auto& policy = row.policy;
  if (policy.max_execs > 0 && row.used_execs >= policy.max_execs) {
    refuse_budget(row,
                  std::to_string(row.used_execs) + " of " +
                      base::count_text(static_cast<uint64_t>(policy.max_execs), "command") +
                      " (max_execs)",
                  "--max-execs N");
  }
  if (policy.max_exec_s > 0) {
    limit_time(record, policy.max_exec_s * 1000,
               "a command of " + row.name + " may run " + std::to_string(policy.max_exec_s) +
                   " s (max_exec_s)");
  }
  if (policy.max_exec_total_s == 0) return;
  const int64_t total_ms = policy.max_exec_total_s * 1000;
  const int64_t used_ms = row.used_exec_ms + watcher_.running_time(row.id).ms;
  const std::string of_total =
      " of " + std::to_string(policy.max_exec_total_s) + " s of command time (max_exec_total_s)";
  if (used_ms >= total_ms) {
    refuse_budget(row, std::to_string(std::min(used_ms, total_ms) / 1000) + of_total,
                  "--max-exec-total TIME");
  }
  const int64_t left_ms = total_ms - used_ms;
  limit_time(record, left_ms,
             row.name + " had only " + std::to_string((left_ms + 999) / 1000) + of_total + " left");
}

std::optional<ExecView> Execs::repeat(const Caller& caller, const state_db::NewExec& record) {
  if (!record.idempotency_key) return std::nullopt;
  state_db::ExecTable table(context_.store);
  const auto earlier = table.find_by_key(record.workspace, *record.idempotency_key);
  if (!earlier) return std::nullopt;
  if (earlier->request.request_hash != record.request_hash) {
    throw Error(Code::already_exists,
                "this idempotency key belongs to another command, " + earlier->id.str(),
                "use a new key for a new command");
  }
  require_launched(caller, earlier->id);
  if (!caller.keyed || !never_started(*earlier)) return get(caller, earlier->id);
  // The daemon died before the command began and before any client had an answer.
  table.forget_key(earlier->id);
  return std::nullopt;
}

base::SnapshotId Execs::snapshot_before(const state_db::WorkspaceRow& row, bool frees,
                                        std::string& warning) {
  if (!row.policy.snapshot_before_exec) return {};
  // On a nearly full disk, a snapshot would keep the space that this command is meant to free.
  if (!frees || look_at_room(context_.options).level() == RoomLevel::enough)
    return taker_.before_exec(row);
  warning = "skipped the snapshot before it: the disk of the store is nearly full";
  return {};
}

Execs::Intent Execs::record_intent(const Caller& caller, const state_db::WorkspaceRow& row,
                                   state_db::NewExec& record, base::SnapshotId snapshot,
                                   std::optional<state_db::GroupedReads>& reads) {
  for (int tries = 0; tries < kStopsMet; ++tries) {
    // The operation that stops it holds the lock until it is done.
    if (tries > 0) context_.locks.lock(row.id.str(), "start", context_.options.start_deadline * 2);
    auto running = sandbox_for(row, record.user);
    reads.emplace(context_.store);  // the command begins after a commit, the answer after its end
    before_intent.pass();
    record.sandbox = running->sandbox;
    const auto began = base::Histogram::Clock::now();
    if (const auto created = create_record(caller, row, record, snapshot))
      return {*created, std::move(running), began};
    reads.reset();
  }
  throw Error(Code::unavailable, row.name + " is being stopped", "try again in a moment");
}

void Execs::launch(base::ExecId id, const state_db::WorkspaceRow& row, const LiveSandbox& running,
                   const LaunchOptions& options) {
  const auto exec = state_db::ExecTable(context_.store).get(id);
  try {
    launcher_.launch(exec, row, running, options);
  } catch (Error& error) {
    launcher_.settle_failed_launch(exec, running, error);
    // The sandbox died after the check; do not blame a wrong name of the caller's.
    if (error.code() == Code::not_found) {
      throw Error(Code::unavailable, id.str() + " was not started: its sandbox died",
                  "try again with a new idempotency key: the next command starts a new sandbox");
    }
    throw error.add_context(id.str() + " could not be started");
  }
}

std::shared_ptr<void> Execs::mark_launching(base::ExecId id) {
  const std::lock_guard lock(mutex_);
  launching_.insert(id);
  return {this, [id](Execs* execs) {
            const std::lock_guard ending(execs->mutex_);
            execs->launching_.erase(id);
          }};
}

void Execs::require_launched(const Caller& caller, base::ExecId id) {
  {
    const std::lock_guard lock(mutex_);
    if (!launching_.contains(id)) return;
  }
  refuse_unsettled(caller, id.str() + " is being started");
}

std::shared_ptr<const LiveSandbox> Execs::sandbox_for(const state_db::WorkspaceRow& row,
                                                      const std::string& user) {
  auto running = start_stop_.ensure_running(row);
  // Ask the engine before refusing: it may have been down at the last check.
  if (user == "root" && !running->backend->known_capabilities().root &&
      !running->backend->capabilities().root) {
    throw Error(Code::unsupported, "root is not available in the sandbox of " + row.name,
                "run it as user, or move it to a backend that has root: moorage move " + row.name +
                    " --backend lxc");
  }
  return running;
}

// Checks the lease and the sandbox's state inside the write: a takeover or a stop then either finds
// this exec running and ends it, or this call finds that it is too late.
std::optional<state_db::ExecTable::Created> Execs::create_record(
    const Caller& caller, const state_db::WorkspaceRow& workspace, const state_db::NewExec& record,
    base::SnapshotId snapshot) {
  const auto writing = leases_.write(caller, workspace);
  using Created = state_db::ExecTable::Created;
  return context_.store.transaction([&]() -> std::optional<Created> {
    const auto state = state_db::SandboxTable(context_.store).get(record.sandbox).state;
    if (state != state_db::SandboxState::running && state != state_db::SandboxState::frozen)
      return std::nullopt;
    // The workspace is being deleted: its sandbox stops next.
    if (state_db::WorkspaceTable(context_.store).get(workspace.id).state !=
        state_db::WorkspaceState::ready)
      return std::nullopt;
    const Created created = state_db::ExecTable(context_.store).create(record);
    // Before anyone can find the row.
    if (caller.keyed && !created.existed) caller.keyed->until_answered = mark_launching(created.id);
    if (snapshot && !created.existed)
      state_db::SnapshotTable(context_.store).set_exec(snapshot, created.id);
    return created;
  });
}

Execs::Held Execs::hold(const Caller& caller, base::ExecId id) {
  auto row = find_exec(context_.store, caller, id, Right::write);
  const auto workspace = state_db::WorkspaceTable(context_.store).get(row.request.workspace);
  return {std::move(row), leases_.write(caller, workspace)};
}

ExecView Execs::view(state_db::ExecRow row) {
  ExecView view;
  view.output_bytes = row.outcome.output_bytes;
  if (row.state == state_db::ExecState::running) {
    if (const auto progress = watcher_.progress(row.id)) {
      view.output_bytes = progress->output_bytes;
      view.last_output_ms = progress->last_output_ms;
    }
  }
  view.row = std::move(row);
  return view;
}

ExecView Execs::get(const Caller& caller, base::ExecId id) {
  const state_db::GroupedReads reads(context_.store);
  return view(find_exec(context_.store, caller, id, Right::read));
}

std::vector<ExecView> Execs::list(const Caller& caller, const ListWanted& wanted) {
  state_db::ExecQuery query{.before = wanted.before, .limit = wanted.limit};
  if (wanted.workspace) {
    query.workspace = find_workspace(context_.store, caller, *wanted.workspace, Right::read).id;
  } else {
    query.seen_by = caller.viewer();
  }
  if (wanted.running_only) query.state = state_db::ExecState::running;
  std::vector<ExecView> views;
  for (auto& row : state_db::ExecTable(context_.store).list(query))
    views.push_back(view(std::move(row)));
  return views;
}

Execs::History Execs::history(const Caller& caller, const std::string& workspace,
                              base::ExecId before, size_t limit) {
  History history;
  history.workspace = find_with_deleted(context_.store, caller, workspace, Right::read);
  const state_db::ExecQuery query{
      .workspace = history.workspace.id, .before = before, .limit = limit};
  state_db::ExecTable table(context_.store);
  auto rows = table.list(query);
  const auto last = std::max_element(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.outcome.ended_wall_ms < b.outcome.ended_wall_ms;
  });
  if (!before && last != rows.end() && last->outcome.ended_wall_ms > 0 && !last->changed_files) {
    views_.measure(history.workspace, last->id);
    rows = table.list(query);
  }
  if (!rows.empty()) history.truncated = table.has_older(rows.back());
  const bool all = !before && !history.truncated;
  history.total = all ? rows.size() : table.count(history.workspace.id);
  std::reverse(rows.begin(), rows.end());
  for (auto& row : rows) history.execs.push_back(view(std::move(row)));
  return history;
}

base::Fd Execs::open_journal(const Caller& caller, base::ExecId id) {
  const auto row = find_exec(context_.store, caller, id, Right::read);
  return base::open_file(journal_path(context_.options, row.request.workspace, row.id), O_RDONLY);
}

ExecWatcher::Subscription Execs::subscribe(base::ExecId id, std::function<void()> changed) {
  return watcher_.subscribe(id, std::move(changed));
}

std::string Execs::output_obstacle() const {
  if (base::file_system_space(context_.options.store).free_bytes >= kJournalLeast) return {};
  return "the disk of the store is full: the command's output and its end may be waiting for "
         "space; free some: moorage gc";
}

backends::InputTaken Execs::send(const state_db::ExecRow& row, uint64_t offset,
                                 std::string_view bytes, std::chrono::milliseconds deadline) {
  return backends::EnvdClient(sandbox_of(context_, row)->endpoint)
      .send_input(row.id.str(), offset, bytes, deadline);
}

backends::InputTaken Execs::send_input(const Caller& caller, base::ExecId id, uint64_t offset,
                                       std::string_view bytes, std::chrono::milliseconds deadline) {
  const auto held = hold(caller, id);
  return send(held.row, offset, bytes, deadline);
}

uint64_t Execs::input_accepted(const Caller& caller, base::ExecId id) {
  return send(find_exec(context_.store, caller, id, Right::read), 0, {}, kWardenDeadline).accepted;
}

void Execs::check_input(const Caller& caller, base::ExecId id) { hold(caller, id); }

void Execs::close_input(const Caller& caller, base::ExecId id) {
  const auto held = hold(caller, id);
  backends::EnvdClient(sandbox_of(context_, held.row)->endpoint).close_input(id.str());
}

void Execs::send_signal(const Caller& caller, base::ExecId id, const std::string& name) {
  const auto held = hold(caller, id);
  const int number = signal_number(name);
  const auto running = sandbox_of(context_, held.row);
  const bool runs_it = caller.uid == held.row.request.owner_uid;  // then the name adds nothing
  try {
    state_db::ExecTable(context_.store)
        .note_signal(id, number, runs_it ? "" : user_name(caller.uid));
  } catch (const Error& error) {  // a command that fills the disk must still be endable
    if (error.code() != Code::resource_exhausted) throw;
    base::log(base::LogLevel::warning, "exec.signal_not_noted",
              {{"ex", id}, {"error", error.message()}});
  }
  backends::EnvdClient(running->endpoint).send_signal(id.str(), number);
}

void Execs::cancel(const Caller& caller, base::ExecId id, const std::string& because) {
  const std::string who = caller.is_daemon ? "" : "cancelled by " + user_name(caller.uid);
  const std::string why = who + (who.empty() || because.empty() ? "" : ": ") + because;
  const auto held = hold(caller, id);
  const auto running = sandbox_of(context_, held.row);
  state_db::ExecTable table(context_.store);
  const bool cancels = context_.store.transaction([&] {
    const bool ends = table.request_cancel(id, why);
    if (ends) join_key(context_.store, caller, id.str());
    return ends;
  });
  if (!cancels) throw_over(table.get(id));
  launcher_.end_softly(id, *running);
}

void Execs::resize(const Caller& caller, base::ExecId id, uint32_t columns, uint32_t rows) {
  const auto held = hold(caller, id);
  backends::EnvdClient(sandbox_of(context_, held.row)->endpoint).resize(id.str(), {columns, rows});
}

}  // namespace moorage::workspace
