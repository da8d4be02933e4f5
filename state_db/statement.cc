#include "state_db/statement.h"

#include <SQLiteCpp/SQLiteCpp.h>

#include <cassert>

#include "base/error.h"
#include "state_db/connection.h"
#include "state_db/log_sync.h"
#include "state_db/word_list.h"

namespace moorage::state_db {

Statement::Statement(std::unique_lock<std::recursive_mutex> lock, Connection& connection,
                     std::string_view sql, LogSync* log)
    : lock_(std::move(lock)),
      connection_(connection),
      statement_(connection.lease(sql)),
      log_(log) {}

Statement::~Statement() {
  connection_.give_back(std::move(statement_));
  if (log_ == nullptr) return;
  const int64_t seen = log_->newest();
  lock_.unlock();
  log_->wait(seen);  // a store with a failed log refuses later calls
}

bool Statement::step() {
  next_column_ = 0;
  try {
    return statement_->executeStep();
  } catch (const SQLite::Exception& error) {
    connection_.rethrow(error, connection_.name() + ": " + statement_->getQuery());
  }
}

int64_t Statement::finish() {
  assert(connection_.in_transaction());
  const int64_t before = connection_.total_changes();
  while (step()) {
  }
  // total_changes also counts triggers and foreign key actions, but the schema has neither.
  return connection_.total_changes() - before;
}

void Statement::put_null() { statement_->bind(next_value_++); }
void Statement::put_integer(int64_t value) { statement_->bind(next_value_++, value); }
void Statement::put(double value) { statement_->bind(next_value_++, value); }
void Statement::put(std::string_view value) { statement_->bind(next_value_++, std::string(value)); }
void Statement::put(const Blob& value) {
  // A null pointer would bind NULL; an empty blob is not NULL.
  const char* bytes = value.bytes.empty() ? "" : value.bytes.data();
  statement_->bindNoCopy(next_value_++, static_cast<const void*>(bytes),
                         static_cast<int>(value.bytes.size()));
}

void Statement::put(const std::vector<std::string>& words) {
  const std::string bytes = encode_words(words);
  statement_->bind(next_value_++, static_cast<const void*>(bytes.data()),
                   static_cast<int>(bytes.size()));
}

void Statement::put(const std::vector<int64_t>& numbers) {
  std::string list;
  for (const int64_t number : numbers) list += (list.empty() ? "" : ",") + std::to_string(number);
  put("[" + list + "]");
}

int64_t Statement::get_integer() { return statement_->getColumn(next_column_++).getInt64(); }
void Statement::get(double& out) { out = statement_->getColumn(next_column_++).getDouble(); }
bool Statement::next_is_null() { return statement_->getColumn(next_column_).isNull(); }

void Statement::get(std::string& out) {
  const SQLite::Column column = statement_->getColumn(next_column_++);
  const auto* const bytes = static_cast<const char*>(column.getBlob());
  out.assign(bytes ? bytes : "", bytes ? static_cast<size_t>(column.getBytes()) : 0);
}

void Statement::get(std::vector<std::string>& out) {
  std::string bytes;
  get(bytes);
  out = decode_words(bytes);
}

void Statement::throw_unknown_state(std::string_view noun, const std::string& name) {
  throw Error(Code::corrupted, "state.db has the unknown " + std::string(noun) + " state " + name);
}

}  // namespace moorage::state_db
