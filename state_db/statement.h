// A cached SQL statement with the store's lock, for the tables of this layer. Values are bound and
// columns are read in order, so the SQL and the argument list match:
//   auto query = store.prepare("SELECT id, name FROM layers WHERE parent = ?");
//   query.bind(parent);
//   while (query.step()) query.read(row.id, row.name);
// An id of 0 is stored as NULL. Lists of numbers and ids are bound as JSON, for json_each, so that
// one statement can query many rows. Writing outside of Store::transaction is a programmer error.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/ids.h"
#include "state_db/lifecycle.h"

namespace SQLite {
class Statement;
}  // namespace SQLite

namespace moorage::state_db {

class Connection;
class LogSync;

// Bytes that need not be UTF-8. Borrowed until the statement has run.
struct Blob {
  std::string_view bytes;
};

class Statement {
 public:
  // With `log`: the destructor waits until the rows read are durable.
  Statement(std::unique_lock<std::recursive_mutex> lock, Connection& connection,
            std::string_view sql, LogSync* log = nullptr);
  ~Statement();
  Statement(Statement&&) = delete;

  void bind(const auto&... values) { (put(values), ...); }
  // True: a row is ready to read.
  bool step();
  // Reads the columns after the last ones read of this row.
  void read(auto&... columns) { (get(columns), ...); }
  // Bind, and let read_row(statement, row) fill all rows, or the first one.
  template <typename Row>
  std::vector<Row> all(const auto& read_row, const auto&... values) {
    bind(values...);
    std::vector<Row> rows;
    while (step()) read_row(*this, rows.emplace_back());
    return rows;
  }
  template <typename Row>
  std::optional<Row> first(const auto& read_row, const auto&... values) {
    bind(values...);
    std::optional<Row> row;
    if (step()) read_row(*this, row.emplace());
    return row;
  }
  // The same for the first column.
  template <typename T>
  std::vector<T> column(const auto&... values) {
    return all<T>([](Statement& query, T& value) { query.read(value); }, values...);
  }
  template <typename T>
  std::optional<T> value(const auto&... values) {
    return first<T>([](Statement& query, T& value) { query.read(value); }, values...);
  }
  // Binds, writes, and returns how many rows changed.
  int64_t run(const auto&... values) {
    bind(values...);
    return finish();
  }

 private:
  int64_t finish();
  void put_null();
  void put_integer(int64_t value);
  void put(double value);
  void put(std::string_view value);
  void put(const Blob& value);
  void put(const std::vector<std::string>& words);  // format of word_list.h
  void put(const std::vector<int64_t>& numbers);
  int64_t get_integer();
  bool next_is_null();
  [[noreturn]] void throw_unknown_state(std::string_view noun, const std::string& name);

  void put(std::integral auto value) { put_integer(static_cast<int64_t>(value)); }
  template <base::IdPrefix Prefix>
  void put(const std::vector<base::Id<Prefix>>& ids) {
    std::vector<int64_t> numbers;
    for (const auto id : ids) numbers.push_back(id.value);
    put(numbers);
  }
  template <base::IdPrefix Prefix>
  void put(base::Id<Prefix> id) {
    id ? put_integer(id.value) : put_null();
  }
  template <typename State>
  requires std::is_enum_v<State>
  void put(State state) { put(state_name(state)); }
  template <typename T>
  void put(const std::optional<T>& value) {
    value ? put(*value) : put_null();
  }

  void get(std::string& out);
  void get(std::vector<std::string>& out);
  void get(double& out);
  void get(bool& out) { out = get_integer() != 0; }
  void get(std::integral auto& out) {
    out = static_cast<std::remove_reference_t<decltype(out)>>(get_integer());
  }
  template <base::IdPrefix Prefix>
  void get(base::Id<Prefix>& out) {
    out.value = get_integer();
  }
  template <typename State>
  requires std::is_enum_v<State>
  void get(State& out) {
    std::string name;
    get(name);
    const auto state = state_from_name<State>(name);
    if (!state) throw_unknown_state(LifeCycle<State>::kNoun, name);
    out = *state;
  }
  template <typename T>
  void get(std::optional<T>& out) {
    if (next_is_null()) {
      ++next_column_;
      out.reset();
    } else {
      get(out.emplace());
    }
  }

  std::unique_lock<std::recursive_mutex> lock_;
  Connection& connection_;
  std::unique_ptr<SQLite::Statement> statement_;
  LogSync* const log_;
  int next_value_ = 1;
  int next_column_ = 0;
};

}  // namespace moorage::state_db
