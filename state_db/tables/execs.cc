#include "state_db/tables/execs.h"

#include "base/clock.h"
#include "base/error.h"
#include "state_db/rows.h"
#include "state_db/store.h"
#include "state_db/word_list.h"

namespace moorage::state_db {

namespace {

constexpr std::string_view kSelect =
    "SELECT id, workspace, sandbox, owner_uid, idempotency_key, request_hash, argv, environment, "
    "directory, user, terminal, input, timeout_ms, state, cancel_requested, started_wall_ms, "
    "reason, exit_code, signal, ended_wall_ms, output_bytes, omitted_bytes, user_ms, system_ms, "
    "max_rss_bytes, category, changed_files, hook, imported_from, sent_signal, sent_by, merged, "
    "input_read FROM execs WHERE ";

// Uses the short index instead of all rows ever written in id order. Sorts the ids, not the rows,
// which may be long.
constexpr std::string_view kIsRunning = "id IN (SELECT id FROM execs WHERE state = 'running')";

void read_row(Statement& query, ExecRow& row) {
  NewExec& request = row.request;
  ExecOutcome& outcome = row.outcome;
  std::string environment;
  std::string category;
  query.read(row.id, request.workspace, request.sandbox, request.owner_uid, request.idempotency_key,
             request.request_hash, request.argv, environment, request.directory, request.user,
             request.terminal, request.input, request.timeout_ms, row.state, row.cancel_requested,
             row.started_wall_ms, outcome.error, outcome.exit_code, outcome.signal,
             outcome.ended_wall_ms, outcome.output_bytes, outcome.omitted_bytes, outcome.user_ms,
             outcome.system_ms, outcome.max_rss_bytes, category, row.changed_files, request.hook,
             row.imported_from, row.sent_signal, row.sent_by, request.merged, outcome.input_read);
  outcome.category = category_from_name(category);
  request.environment = decode_word_map(environment);
  outcome.state = row.state;
}

// Which texts of a command its row includes.
enum class Words {
  all,
  arguments,  // no environment
  some,       // arguments up to kMostRunningBytes
};

void leave(NewExec& request, Words words) {
  if (words != Words::all) request.environment.clear();
  if (words != Words::some) return;
  uint64_t left = kMostRunningBytes;
  for (auto word = request.argv.begin(); word != request.argv.end(); ++word) {
    if (word->size() > left) {
      word->resize(left);
      request.argv.erase(std::next(word), request.argv.end());
      return;
    }
    left -= word->size();
  }
}

// All rows if running, else up to kMostListedBytes, but at least one.
std::vector<ExecRow> select(Store& store, Words words, std::string_view where,
                            const auto&... values) {
  Statement query = store.prepare(std::string(kSelect) + std::string(where));
  query.bind(values...);
  std::vector<ExecRow> rows;
  uint64_t bytes = 0;
  while (query.step()) {
    ExecRow row;
    read_row(query, row);
    leave(row.request, words);
    bytes += text_bytes(row.request);
    if (words != Words::some && !rows.empty() && bytes > kMostListedBytes) break;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::optional<base::ExecId> made_before(Store& store, const NewExec& request) {
  if (!request.idempotency_key) return std::nullopt;
  Statement query = store.prepare(
      "SELECT id, request_hash FROM execs WHERE workspace = ? AND idempotency_key = ?");
  query.bind(request.workspace, request.idempotency_key);
  if (!query.step()) return std::nullopt;
  base::ExecId id;
  std::string hash;
  query.read(id, hash);
  if (hash == request.request_hash) return id;
  throw Error(Code::already_exists,
              "the idempotency key " + *request.idempotency_key + " was used for another command",
              "use a new key for a new command");
}

// Kept in the workspace's row: counting its commands again would take longer with each command.
void count_in(Store& store, base::WorkspaceId workspace) {
  const int64_t counted = change(store,
                                 "UPDATE workspaces SET used_execs = used_execs + 1 WHERE id = ? "
                                 "AND (max_execs = 0 OR used_execs < max_execs)",
                                 workspace);
  if (counted == 1) return;
  throw Error(Code::resource_exhausted,
              workspace.str() + " has reached its limit of commands (max_execs)",
              "raise it: moorage set " + workspace.str() + " --max-execs N");
}

}  // namespace

uint64_t text_bytes(const NewExec& request) {
  uint64_t bytes = request.directory.size();
  for (const auto& word : request.argv) bytes += word.size();
  for (const auto& [name, value] : request.environment) bytes += name.size() + value.size();
  return bytes;
}

ExecTable::Created ExecTable::create(const NewExec& request) {
  const std::string environment = encode_word_map(request.environment);
  return store_.transaction([&]() -> Created {
    if (auto id = made_before(store_, request)) return {.id = *id, .existed = true};
    if (request.hook.empty()) count_in(store_, request.workspace);
    const base::ExecId id{insert(
        store_,
        "INSERT INTO execs (workspace, sandbox, owner_uid, idempotency_key, request_hash, argv, "
        "environment, directory, user, terminal, input, merged, timeout_ms, reason, hook, state, "
        "started_wall_ms)",
        request.workspace, request.sandbox, request.owner_uid, request.idempotency_key,
        request.request_hash, request.argv, Blob{environment}, Blob{request.directory},
        request.user, request.terminal, request.input, request.merged, request.timeout_ms,
        request.time_limit, request.hook, LifeCycle<ExecState>::kFirst, store_.clock().wall_ms())};
    store_.record_new<ExecState>(id);
    return {.id = id, .existed = false};
  });
}

void ExecTable::finish(base::ExecId id, const ExecOutcome& outcome) {
  store_.transaction([&] {
    store_.move(id, ExecState::running, outcome.state, outcome.error);
    const int64_t ended =
        outcome.ended_wall_ms != 0 ? outcome.ended_wall_ms : store_.clock().wall_ms();
    change(store_,
           "UPDATE execs SET exit_code = ?, signal = ?, ended_wall_ms = ?, output_bytes = ?, "
           "omitted_bytes = ?, user_ms = ?, system_ms = ?, max_rss_bytes = ?, category = ?, "
           "input_read = ? "
           "WHERE id = ?",
           outcome.exit_code, outcome.signal, ended, outcome.output_bytes, outcome.omitted_bytes,
           outcome.user_ms, outcome.system_ms, outcome.max_rss_bytes,
           outcome.category ? category_name(*outcome.category) : "", outcome.input_read, id);
    if (outcome.ran_ms <= 0) return;
    change(store_,
           "UPDATE workspaces SET used_exec_ms = used_exec_ms + ? "
           "WHERE id = (SELECT workspace FROM execs WHERE id = ? AND hook = '')",
           outcome.ran_ms, id);
  });
}

base::ExecId ExecTable::add_past(const ExecRow& row) {
  const NewExec& request = row.request;
  const ExecOutcome& outcome = row.outcome;
  const std::string environment = encode_word_map(request.environment);
  return store_.transaction([&] {
    if (request.hook.empty()) {
      change(store_, "UPDATE workspaces SET used_execs = used_execs + 1 WHERE id = ?",
             request.workspace);
    }
    return base::ExecId{insert(
        store_,
        "INSERT INTO execs (workspace, sandbox, owner_uid, request_hash, argv, environment, "
        "directory, user, terminal, input, merged, timeout_ms, hook, state, reason, "
        "cancel_requested, "
        "exit_code, signal, started_wall_ms, ended_wall_ms, output_bytes, omitted_bytes, user_ms, "
        "system_ms, max_rss_bytes, changed_files, category, imported_from)",
        request.workspace, request.sandbox, request.owner_uid, "", request.argv, Blob{environment},
        Blob{request.directory}, request.user, request.terminal, request.input, request.merged,
        request.timeout_ms, request.hook, outcome.state, outcome.error, row.cancel_requested,
        outcome.exit_code, outcome.signal, row.started_wall_ms, outcome.ended_wall_ms,
        outcome.output_bytes, outcome.omitted_bytes, outcome.user_ms, outcome.system_ms,
        outcome.max_rss_bytes, row.changed_files,
        outcome.category ? category_name(*outcome.category) : "", row.imported_from)};
  });
}

void ExecTable::forget_past(base::WorkspaceId workspace) {
  // SQLite overwrites freed space with zeros, which goes through the log.
  constexpr int kRowsAtOnce = 500;
  constexpr int kBytesAtOnce = 1 << 20;
  for (int rows = 1; rows > 0; store_.checkpoint()) {
    store_.transaction([&] {
      change(store_,
             "UPDATE snapshots SET exec = NULL "
             "WHERE exec IN (SELECT id FROM execs WHERE workspace = ? AND imported_from <> '')",
             workspace);
      rows = change(store_,
                    "DELETE FROM execs WHERE id IN (SELECT id FROM (SELECT id, sum(bytes) OVER "
                    "(ORDER BY id) - bytes AS before FROM (SELECT id, length(argv) + "
                    "length(environment) + length(directory) AS bytes FROM execs WHERE "
                    "workspace = ? AND imported_from <> '' ORDER BY id LIMIT ?)) WHERE before < ?)",
                    workspace, kRowsAtOnce, kBytesAtOnce);
    });
  }
}

void ExecTable::set_changed_files(base::ExecId id, uint64_t files) {
  change(store_, "UPDATE execs SET changed_files = ? WHERE id = ?", files, id);
}

void ExecTable::raise_output(base::ExecId id, const Output& output) {
  write(store_,
        "UPDATE execs SET output_bytes = max(output_bytes, ?), "
        "omitted_bytes = max(omitted_bytes, ?) WHERE id = ?",
        output.bytes, output.omitted_bytes, id);
}

bool ExecTable::request_cancel(base::ExecId id, const std::string& why) {
  return store_.transaction([&] {
    const ExecRow row = get(id);
    if (row.state != ExecState::running) return false;
    if (row.cancel_requested) return true;  // the first request ended it
    change(store_, "UPDATE execs SET cancel_requested = 1, reason = ? WHERE id = ?", why, id);
    return true;
  });
}

void ExecTable::note_signal(base::ExecId id, int signal, const std::string& by) {
  write(store_, "UPDATE execs SET sent_signal = ?, sent_by = ? WHERE id = ? AND state = 'running'",
        signal, by, id);
}

ExecRow ExecTable::get(base::ExecId id) { return require_row(find(id), id); }

std::optional<ExecRow> ExecTable::find(base::ExecId id) {
  return only(select(store_, Words::all, "id = ?", id));
}

std::optional<ExecRow> ExecTable::find_by_key(base::WorkspaceId workspace, const std::string& key) {
  return only(select(store_, Words::all, "workspace = ? AND idempotency_key = ?", workspace, key));
}

void ExecTable::forget_key(base::ExecId id) {
  write(store_, "UPDATE execs SET idempotency_key = NULL WHERE id = ?", id);
}

std::vector<ExecRow> ExecTable::list(const ExecQuery& query) {
  const Seen seen(query.seen_by);
  // Through indexes: a workspace's list skips the commands of all others, and a search for running
  // ones skips finished ones.
  std::string where = query.workspace ? "workspace = ?1" : "?1 IS NULL";
  if (query.state == ExecState::running) {
    where = std::string(kIsRunning) + " AND " + (query.workspace ? "+" : "") + where;
  } else if (query.state) {
    where += " AND state = '" + std::string(state_name(*query.state)) + "'";
  }
  return select(
      store_, Words::arguments,
      where +
          " AND (?2 IS NULL OR sandbox = ?2) AND (?3 IS NULL OR workspace IN (SELECT id FROM "
          "workspaces WHERE owner_uid = ?3 OR team_gid IN (SELECT value FROM json_each(?6)))) AND "
          "(?4 IS NULL OR id < ?4) ORDER BY id DESC LIMIT ?5",
      query.workspace, query.sandbox, seen.uid, query.before, query.limit, seen.gids);
}

bool ExecTable::has_older(const ExecRow& exec) {
  Statement query = store_.prepare("SELECT 1 FROM execs WHERE workspace = ? AND id < ? LIMIT 1");
  return query.value<bool>(exec.request.workspace, exec.id).has_value();
}

uint64_t ExecTable::count(base::WorkspaceId workspace) {
  Statement query = store_.prepare("SELECT count(*) FROM execs WHERE workspace = ?");
  return query.value<uint64_t>(workspace).value();
}

std::vector<ExecRow> ExecTable::list_after(base::WorkspaceId workspace, base::ExecId after,
                                           size_t limit) {
  return select(store_, Words::all, "workspace = ? AND id > ? ORDER BY id LIMIT ?", workspace,
                after.value, limit);
}

std::vector<ExecRow> ExecTable::running(base::SandboxId sandbox) {
  return select(store_, Words::some, "state = 'running' AND sandbox = ? ORDER BY id", sandbox);
}

std::vector<ExecRow> ExecTable::running() {
  return select(store_, Words::some, std::string(kIsRunning) + " ORDER BY id");
}

uint64_t ExecTable::count_running() {
  Statement query = store_.prepare("SELECT count(*) FROM execs WHERE state = 'running'");
  return query.value<uint64_t>().value();
}

uint64_t ExecTable::count_running(base::WorkspaceId workspace) {
  Statement query =
      store_.prepare("SELECT count(*) FROM execs WHERE state = 'running' AND workspace = ?");
  return query.value<uint64_t>(workspace).value();
}

}  // namespace moorage::state_db
