#include "state_db/connection.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <sqlite3.h>

#include <utility>

#include "base/error.h"
#include "base/parts.h"

namespace moorage::state_db {

namespace {

constexpr std::pair<int, Code> kCodes[] = {
    {SQLITE_FULL, Code::resource_exhausted},
    // The WAL's shared memory and a failed allocation: nothing was written.
    {SQLITE_IOERR_SHMSIZE, Code::resource_exhausted},
    {SQLITE_IOERR_NOMEM, Code::resource_exhausted},
    {SQLITE_NOMEM, Code::resource_exhausted},
    {SQLITE_CONSTRAINT_UNIQUE, Code::already_exists},
    {SQLITE_CONSTRAINT_PRIMARYKEY, Code::already_exists},
    {SQLITE_CONSTRAINT_ROWID, Code::already_exists},
    {SQLITE_CONSTRAINT, Code::conflict},
    {SQLITE_BUSY, Code::unavailable},
    {SQLITE_LOCKED, Code::unavailable},
    {SQLITE_CORRUPT, Code::corrupted},
    {SQLITE_NOTADB, Code::corrupted},
    {SQLITE_IOERR, Code::io},
    {SQLITE_CANTOPEN, Code::io},
    {SQLITE_PERM, Code::permission_denied},
    {SQLITE_READONLY, Code::permission_denied}};

// By the extended code, or else by its kind, the last byte.
Code code_of(int extended_code) {
  for (const int wanted : {extended_code, extended_code & 0xff}) {
    for (const auto& [known, code] : kCodes) {
      if (known == wanted) return code;
    }
  }
  return Code::internal;
}

std::string hint_of(Code code) {
  if (code == Code::resource_exhausted)
    return "Free space on the store's file system and try again.";
  if (code == Code::corrupted)
    return "Stop the daemon, keep a copy of the store, and restore state.db; layers that are newer "
           "are kept in lost/.";
  if (code == Code::io) return "Check the kernel log for disk errors, then restart the daemon.";
  if (code == Code::unavailable)
    return "Another program holds state.db locked; end it and try again.";
  return {};
}

}  // namespace

std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

Connection::Connection(const std::string& path, int busy_timeout_ms, std::string name) try
    : name_(std::move(name)),
      database_(std::make_unique<SQLite::Database>(
          path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, busy_timeout_ms)) {
  sqlite3_extended_result_codes(database_->getHandle(), 1);
} catch (const SQLite::Exception& error) {
  throw Error(code_of(error.getExtendedErrorCode()), path + ": " + error.what());
}

Connection::~Connection() = default;

template <typename Work>
auto Connection::guarded(const std::string& what, const Work& work) {
  try {
    return work();
  } catch (const SQLite::Exception& error) {
    rethrow(error, what);
  }
}

void Connection::execute(const std::string& statements) {
  guarded(name_, [&] { database_->exec(statements); });
}

int64_t Connection::query_integer(const std::string& statement) {
  const std::string text = query_text(statement);
  return text.empty() ? 0 : std::stoll(text);
}

std::string Connection::query_text(const std::string& statement) {
  return guarded(name_, [&] {
    SQLite::Statement query(*database_, statement);
    return query.executeStep() ? query.getColumn(0).getString() : std::string();
  });
}

std::vector<std::string> Connection::query_column(const std::string& statement) {
  return guarded(name_, [&] {
    std::vector<std::string> column;
    SQLite::Statement query(*database_, statement);
    while (query.executeStep()) column.push_back(query.getColumn(0).getString());
    return column;
  });
}

std::vector<std::string> Connection::check(const std::string& pragma) {
  std::vector<std::string> problems;
  std::vector<std::string> rows;
  try {
    rows = query_column("PRAGMA " + pragma);
  } catch (const Error& error) {
    if (error.code() != Code::corrupted) throw;
    problems.emplace_back("the check stopped at a damaged page");
  }
  for (const auto& row : rows) {
    for (const auto line : base::split(row, '\n')) {
      if (!line.empty() && line != "ok" && !line.starts_with("*** in database"))
        problems.emplace_back(line);
    }
  }
  return problems;
}

void Connection::keep_log() {
  sqlite3_db_config(database_->getHandle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
}

void Connection::watch_log(int most_pages) {
  most_log_pages_ = most_pages;
  const auto committed = [](void* self, sqlite3* database, const char* name, int pages) {
    auto* connection = static_cast<Connection*>(self);
    connection->log_pages_ = pages;
    // A failed checkpoint loses nothing: the data stays in the log, and the next one retries it.
    if (pages >= connection->most_log_pages_) sqlite3_wal_checkpoint(database, name);
    return SQLITE_OK;
  };
  sqlite3_wal_hook(database_->getHandle(), committed, this);
}

bool Connection::in_transaction() const {
  return sqlite3_get_autocommit(database_->getHandle()) == 0;
}

int64_t Connection::total_changes() const {
  return sqlite3_total_changes64(database_->getHandle());
}

int64_t Connection::last_insert_id() const { return database_->getLastInsertRowid(); }

void Connection::require_usable() const {
  if (broken_) {
    throw Error(Code::io, "the database failed; the next start of the daemon checks it",
                hint_of(Code::io));
  }
}

std::unique_ptr<SQLite::Statement> Connection::lease(std::string_view sql) {
  require_usable();
  if (auto kept = kept_.find(sql); kept != kept_.end() && !kept->second.empty()) {
    auto statement = std::move(kept->second.back());
    kept->second.pop_back();
    return statement;
  }
  return guarded(name_ + ": " + std::string(sql),
                 [&] { return std::make_unique<SQLite::Statement>(*database_, std::string(sql)); });
}

void Connection::give_back(std::unique_ptr<SQLite::Statement> statement) noexcept {
  statement->tryReset();
  try {
    statement->clearBindings();
    kept_[statement->getQuery()].push_back(std::move(statement));
  } catch (const std::exception&) {
    // Only the reuse is lost: the next user prepares it again.
  }
}

void Connection::rethrow(const SQLite::Exception& error, const std::string& what) {
  const int extended_code = error.getExtendedErrorCode();
  const Code code = code_of(extended_code);
  if (code == Code::io || code == Code::corrupted) broken_ = true;
  if (extended_code == SQLITE_FULL && on_full_) on_full_();
  throw Error(code, what + ": " + error.what(), hint_of(code));
}

}  // namespace moorage::state_db
