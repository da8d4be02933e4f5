// A SQLite connection of a store, without a lock: Store guards it. It caches prepared statements
// and turns SQLite's errors into Error:
//   UNIQUE, PRIMARY KEY -> already_exists    other constraints -> conflict     BUSY -> unavailable
//   FULL -> resource_exhausted               CORRUPT, NOTADB -> corrupted, and IOERR -> io, both
//   with broken()
// After a failed write SQLite does not know the file's state (fsync reports an error once), and a
// write after a damaged page spreads the damage; so a broken connection refuses all calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace SQLite {
class Database;
class Exception;
class Statement;
}  // namespace SQLite

namespace moorage::state_db {

std::string quoted(std::string_view text);  // as a literal of SQL

class Connection {
 public:
  // Opens or creates the file and sets the busy timeout. `name` is for messages.
  Connection(const std::string& path, int busy_timeout_ms, std::string name = "state.db");
  ~Connection();
  Connection(Connection&&) = delete;

  void execute(const std::string& statements);
  int64_t query_integer(const std::string& statement);   // first column of the first row, or 0
  std::string query_text(const std::string& statement);  // the same, or ""
  std::vector<std::string> query_column(const std::string& statement);  // first of each row
  // Runs PRAGMA integrity_check or similar and returns the problems, one sentence each.
  std::vector<std::string> check(const std::string& pragma);
  // The last connection to close a database checkpoints its log and removes it. This one leaves the
  // log alone, for a damaged database that must stay unmodified.
  void keep_log();
  // Counts the pages of the log at each commit of this connection; at `most_pages` the commit runs
  // a checkpoint. Replaces PRAGMA wal_autocheckpoint.
  void watch_log(int most_pages);
  int log_pages() const { return log_pages_; }
  void log_is_over() { log_pages_ = 0; }  // another connection ran a checkpoint
  bool in_transaction() const;
  int64_t total_changes() const;
  int64_t last_insert_id() const;

  bool broken() const { return broken_; }
  void require_usable() const;           // throws io if broken
  void refuse_all() { broken_ = true; }  // its log failed
  void on_full(std::function<void()> give_room) { on_full_ = std::move(give_room); }

  // A prepared statement for one user at a time, from the cache or newly prepared.
  std::unique_ptr<SQLite::Statement> lease(std::string_view sql);
  void give_back(std::unique_ptr<SQLite::Statement> statement) noexcept;
  const std::string& name() const { return name_; }
  [[noreturn]] void rethrow(const SQLite::Exception& error, const std::string& what);

 private:
  template <typename Work>
  auto guarded(const std::string& what, const Work& work);

  const std::string name_;
  std::unique_ptr<SQLite::Database> database_;
  std::map<std::string, std::vector<std::unique_ptr<SQLite::Statement>>, std::less<>> kept_;
  std::function<void()> on_full_;
  std::atomic<bool> broken_{false};
  std::atomic<int> log_pages_{0};
  int most_log_pages_ = 0;
};

}  // namespace moorage::state_db
