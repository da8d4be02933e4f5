#include "state_db/store.h"

#include <sys/stat.h>

#include <array>
#include <cassert>

#include "base/digest.h"
#include "base/error.h"
#include "state_db/connection.h"
#include "state_db/event.h"
#include "state_db/log_sync.h"
#include "state_db/migrations.h"
#include "state_db/reads.h"
#include "state_db/statement.h"
#include "state_db/store_age.h"
#include "state_db/store_lock.h"

namespace moorage::state_db {

namespace {

// The table with the states of a life cycle, and the subject columns of an event of its row:
// repository, workspace, sandbox, exec, snapshot.
struct StateTable {
  std::string_view noun;
  std::string_view table;
  std::string_view subject;
};

constexpr std::array kStateTables{
    StateTable{"repository", "repositories", "id, NULL, NULL, NULL, NULL"},
    StateTable{"workspace", "workspaces", "repository, id, NULL, NULL, NULL"},
    StateTable{"sandbox", "sandboxes", "NULL, workspace, id, NULL, NULL"},
    StateTable{"exec", "execs", "NULL, workspace, sandbox, id, NULL"},
    StateTable{"snapshot", "snapshots", "NULL, workspace, NULL, exec, id"},
    StateTable{"best_of", "best_of", "NULL, workspace, NULL, NULL, NULL"},
    StateTable{"approval", "approvals", "NULL, workspace, NULL, NULL, NULL"},
    StateTable{"attempt", "best_of_attempts", "NULL, workspace, NULL, test_exec, NULL"},
};

const StateTable& state_table(std::string_view noun) {
  for (const StateTable& table : kStateTables) {
    if (table.noun == noun) return table;
  }
  throw Error(Code::internal, "unknown kind of row: " + std::string(noun));
}

// In pages of 4 KiB; most commits write a few. The second limits the log if nobody calls
// checkpoint().
constexpr int kLogPagesDue = 512;
constexpr int kMostLogPages = 16'000;
// In KiB, the pages cached by a connection: those of the newest rows and the trees' roots.
constexpr const char* kCache = "PRAGMA cache_size = -256";

std::string known_store_id(Connection& connection) {
  if (connection.query_integer("SELECT count(*) FROM sqlite_schema") == 0) return {};
  return connection.query_text("SELECT value FROM meta WHERE name = 'store_id'");
}

std::unique_ptr<Connection> connect(const StoreOptions& options) {
  return std::make_unique<Connection>(options.directory + "/state.db", options.busy_timeout_ms);
}

bool has_log(const std::string& directory) {
  struct stat status {};
  return stat((directory + "/state.db-wal").c_str(), &status) == 0 && status.st_size > 0;
}

// The store that this thread reads through a ReadTransaction.
thread_local const Store* reading_of = nullptr;

// Number of open `GroupedReads`s of this thread.
thread_local int grouped = 0;

std::string savepoint(int depth) { return "moorage_" + std::to_string(depth); }

}  // namespace

Store::Store(const StoreOptions& options) : Store(options, lock_store(options.directory)) {}

Store::Store(const StoreOptions& options, Fd lock)
    : clock_(options.clock),
      directory_(options.directory),
      reserve_bytes_(options.reserve_bytes),
      lock_file_(std::move(lock)),
      connection_(connect(options)) {
  try {
    refuse_unknown(*connection_, present_schema());
    store_id_ = known_store_id(*connection_);
    if (store_id_.empty() && !options.may_make)
      throw Error(Code::corrupted, "state.db is damaged: it has no tables");
    if (!store_id_.empty() && options.before_changes) options.before_changes(store_id_);
    was_clean_ = store_id_.empty() ||
                 connection_->query_text("SELECT value FROM meta WHERE name = 'clean'") == "1";
    if (!was_clean_) check_file();
    connection_->on_full([this] { release_reserve(directory_); });
    refill_reserve();
    bring_up(*connection_, present_schema(), clock_->wall_ms());
    connection_->watch_log(kMostLogPages);
    connection_->execute("PRAGMA synchronous = NORMAL");  // log_ syncs
    log_ = std::make_unique<LogSync>(directory_ + "/state.db-wal",
                                     [this] { connection_->refuse_all(); });
    connection_->execute(kCache);
    checkpointer_ = connect(options);
    checkpointer_->execute("PRAGMA synchronous = FULL");
    checkpointer_->execute(kCache);
    checkpointer_->on_full([this] { release_reserve(directory_); });
    reader_ = connect(options);
    reader_->execute("PRAGMA query_only = ON");
    reader_->execute(kCache);
    if (store_id_.empty()) store_id_ = base::random_hex(4);
    transaction([&] {
      prepare("INSERT OR IGNORE INTO meta (name, value) VALUES ('store_id', ?)").run(store_id_);
      prepare("INSERT OR REPLACE INTO meta (name, value) VALUES ('clean', '0')").run();
      StoreAge(*this).save();
    });
  } catch (const Error&) {
    if (has_log(directory_)) connection_->keep_log();
    throw;
  }
}

Store::~Store() {
  try {
    transaction([&] { prepare("UPDATE meta SET value = '1' WHERE name = 'clean'").run(); });
  } catch (const Error&) {
    // The next open then checks the file, as after an unclean end.
  }
}

bool Store::failed() const {
  return connection_->broken() || checkpointer_->broken() || reader_->broken();
}

void Store::checkpoint() {
  const std::lock_guard lock(checkpoint_mutex_);
  if (connection_->log_pages() < kLogPagesDue) return;
  checkpointer_->require_usable();
  // PASSIVE does not wait. The second checkpoint blocks commits for the few pages added meanwhile:
  // a log starts over only when all of it is in the database, and overwriting it syncs faster than
  // growing it.
  checkpointer_->query_text("PRAGMA wal_checkpoint(PASSIVE)");
  const std::lock_guard quiet(mutex_);
  checkpointer_->query_text("PRAGMA wal_checkpoint(PASSIVE)");
  connection_->log_is_over();
}

bool Store::give_room() { return release_reserve(directory_); }
bool Store::refill_reserve() { return make_reserve(directory_, reserve_bytes_); }

bool Store::has_reserve() const { return reserve_is_there(directory_, reserve_bytes_); }

Statement Store::prepare(std::string_view sql) {
  if (reading_of == this) return Statement(std::unique_lock(reader_mutex_), *reader_, sql);
  std::unique_lock lock(mutex_);
  // Reads within a transaction or a `GroupedReads` are awaited at its end.
  LogSync* log = depth_ == 0 && grouped == 0 ? log_.get() : nullptr;
  return Statement(std::move(lock), *connection_, sql, log);
}

void Store::run(std::string_view sql) {
  Statement(std::unique_lock(mutex_), *connection_, sql).step();
}

int64_t Store::last_insert_id() { return connection_->last_insert_id(); }

ReadTransaction::ReadTransaction(Store& store) : store_(store), lock_(store.reader_mutex_) {
  if (reading_of) throw Error(Code::internal, "a second read transaction in one thread");
  store_.connection_->require_usable();
  store_.reader_->require_usable();
  store_.reader_->execute("BEGIN");
  reading_of = &store_;
}

ReadTransaction::~ReadTransaction() {
  reading_of = nullptr;
  try {
    store_.reader_->execute("COMMIT");
  } catch (const Error&) {
    // Nothing was written; a broken reader refuses later calls.
  }
  lock_.unlock();
  store_.log_->wait(store_.log_->newest());  // a store with a failed log refuses later calls
}

GroupedReads::GroupedReads(Store& store) : store_(store) { ++grouped; }

GroupedReads::~GroupedReads() {
  if (--grouped > 0) return;
  store_.log_->wait(store_.log_->newest());  // a store with a failed log refuses later calls
}

Store::Transaction::Transaction(Store& store)
    : store_(store), lock_(store.mutex_), seq_before_(store.new_seq_) {
  if (reading_of == &store) throw Error(Code::internal, "a write during a read transaction");
  store_.connection_->require_usable();
  if (store_.depth_ == 0) {
    changes_before_ = store_.connection_->total_changes();
    store_.run("BEGIN IMMEDIATE");
  } else {
    store_.run("SAVEPOINT " + savepoint(store_.depth_));
  }
  ++store_.depth_;
}

void Store::Transaction::commit() {
  if (store_.depth_ > 1) {
    store_.run("RELEASE " + savepoint(store_.depth_ - 1));
    --store_.depth_;
    open_ = false;
    return;
  }
  const bool wrote = store_.connection_->total_changes() != changes_before_;
  int64_t number = store_.log_->newest();  // of the reads
  if (wrote) {
    const LogSync::Commit commit(*store_.log_);
    store_.run("COMMIT");
    ++store_.commits_;
    number = commit.number();
  } else {
    store_.run("COMMIT");
  }
  store_.depth_ = 0;
  open_ = false;
  const int64_t seq = std::exchange(store_.new_seq_, 0);
  lock_.unlock();
  if (!store_.log_->wait(number)) store_.connection_->require_usable();
  if (seq != 0 && store_.wake_) store_.wake_(seq);
}

Store::Transaction::~Transaction() {
  if (!open_) return;
  --store_.depth_;
  store_.new_seq_ = seq_before_;
  // A full disk or a failed write has rolled the whole transaction back already.
  if (!store_.connection_->in_transaction()) return;
  try {
    if (store_.depth_ == 0) {
      store_.connection_->execute("ROLLBACK");
    } else {
      const std::string name = savepoint(store_.depth_);
      store_.connection_->execute("ROLLBACK TO " + name + "; RELEASE " + name);
    }
  } catch (const Error&) {
    // The connection is broken and refuses later calls; nothing of this was committed.
  }
}

void Store::move_row(const RowMove& move, int64_t id, const std::string& id_text,
                     std::string_view reason) {
  const std::string step = std::string(move.from) + " to " + std::string(move.to);
  if (!move.legal) {
    throw Error(Code::internal, std::string(move.noun) + " cannot change from " + step);
  }
  const std::string table(state_table(move.noun).table);
  transaction([&] {
    if (prepare("UPDATE " + table + " SET state = ?, reason = ? WHERE id = ? AND state = ?")
            .run(move.to, event_text(reason), id, move.from) == 1) {
      record_row(move.noun, id, move.from, move.to, reason);
      return;
    }
    const auto present =
        prepare("SELECT state FROM " + table + " WHERE id = ?").value<std::string>(id);
    if (!present) throw Error(Code::not_found, "there is no " + id_text);
    throw Error(Code::conflict, id_text + " is " + *present + ", so it cannot change from " + step);
  });
}

void Store::record_row(std::string_view noun, int64_t id, std::string_view from,
                       std::string_view to, std::string_view text) {
  assert(connection_->in_transaction());
  const StateTable& about = state_table(noun);
  const int64_t written =
      prepare(
          "INSERT INTO events (wall_ms, kind, from_state, to_state, text, repository, workspace, "
          "sandbox, exec, snapshot) SELECT ?, ?, ?, ?, ?, " +
          std::string(about.subject) + " FROM " + std::string(about.table) + " WHERE id = ?")
          .run(clock_->wall_ms(), std::string(noun) + ".state", from, to, event_text(text), id);
  assert(written == 1);
  new_seq_ = last_insert_id();
}

}  // namespace moorage::state_db
