#include "state_db/statement.h"

#include <SQLiteCpp/SQLiteCpp.h>

#include <cassert>

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

void Statement::put_integer(int64_t value) { statement_->bind(next_value_++, value); }
void Statement::put_real(double value) { statement_->bind(next_value_++, value); }
void Statement::put_text(std::string_view value) {
  statement_->bind(next_value_++, std::string(value));
}
void Statement::put_null() { statement_->bind(next_value_++); }
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

int64_t Statement::get_integer() { return statement_->getColumn(next_column_++).getInt64(); }
double Statement::get_real() { return statement_->getColumn(next_column_++).getDouble(); }
bool Statement::next_is_null() { return statement_->getColumn(next_column_).isNull(); }

std::string Statement::get_bytes() {
  const SQLite::Column column = statement_->getColumn(next_column_++);
  const void* bytes = column.getBlob();
  return bytes
             ? std::string(static_cast<const char*>(bytes), static_cast<size_t>(column.getBytes()))
             : std::string();
}

void Statement::get(std::vector<std::string>& out) { out = decode_words(get_bytes()); }

void Statement::throw_unknown_state(std::string_view noun, const std::string& name) {
  throw Error(Code::corrupted, "state.db has the unknown " + std::string(noun) + " state " + name);
}

}  // namespace moorage::state_db
