// A cached SQL statement with the store's lock, for the tables of this layer. Values are bound and
// columns are read in order, so the SQL and the argument list match:
//   auto query = store.prepare("SELECT id, name FROM layers WHERE parent = ?");
//   query.bind(parent);
//   while (query.step()) query.read(row.id, row.name);
// An id of 0 is stored as NULL. Writing outside of Store::transaction is a programmer error.
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

#include "base/error.h"
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
  void read(auto&... columns) {
    next_column_ = 0;
    (get(columns), ...);
  }
  // Reads the columns after the last ones read.
  void read_next(auto&... columns) { (get(columns), ...); }
  // Bind, and read the first column of all rows, or of the only row.
  template <typename T>
  std::vector<T> column(const auto&... values) {
    bind(values...);
    std::vector<T> all;
    while (step()) read(all.emplace_back());
    return all;
  }
  template <typename T>
  std::optional<T> value(const auto&... values) {
    bind(values...);
    std::optional<T> found;
    if (step()) read(found.emplace());
    return found;
  }
  // Binds, writes, and returns how many rows changed.
  int64_t run(const auto&... values) {
    bind(values...);
    return finish();
  }

 private:
  int64_t finish();
  void put_integer(int64_t value);
  void put_real(double value);
  void put_text(std::string_view value);
  void put_null();
  void put(const Blob& value);
  void put(const std::vector<std::string>& words);  // format of word_list.h
  int64_t get_integer();
  double get_real();
  std::string get_bytes();
  bool next_is_null();
  [[noreturn]] void throw_unknown_state(std::string_view noun, const std::string& name);

  void put(std::string_view value) { put_text(value); }
  void put(const std::string& value) { put_text(value); }
  void put(const char* value) { put_text(value); }
  void put(double value) { put_real(value); }
  void put(std::integral auto value) { put_integer(static_cast<int64_t>(value)); }
  template <base::IdPrefix Prefix>
  void put(base::Id<Prefix> id) {
    id ? put_integer(id.value) : put_null();
  }
  template <typename State>
  requires std::is_enum_v<State>
  void put(State state) { put_text(state_name(state)); }
  template <typename T>
  void put(const std::optional<T>& value) {
    value ? put(*value) : put_null();
  }

  void get(std::string& out) { out = get_bytes(); }
  void get(std::vector<std::string>& out);
  void get(double& out) { out = get_real(); }
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
    const std::string name = get_bytes();
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

// One statement in a transaction of its own; returns how many rows changed.
int64_t write(auto& store, std::string_view sql, const auto&... values) {
  return store.transaction([&] { return store.prepare(sql).run(values...); });
}

}  // namespace moorage::state_db
