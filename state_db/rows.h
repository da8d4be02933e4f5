// Shorthands for the tables: one statement on a store, and rows that must exist.
#pragma once

#include "base/error.h"
#include "state_db/statement.h"

namespace moorage::state_db {

// Changes rows in the caller's transaction, or in one of its own. Both return how many.
int64_t change(auto& store, std::string_view sql, const auto&... values) {
  return store.prepare(sql).run(values...);
}
int64_t write(auto& store, std::string_view sql, const auto&... values) {
  return store.transaction([&] { return change(store, sql, values...); });
}

// insert(store, "INSERT INTO layers (parent, cold)", parent, cold), in the caller's transaction.
// Returns the id of the row.
int64_t insert(auto& store, std::string_view into, const auto&... values) {
  std::string sql = std::string(into) + " VALUES (?";
  for (size_t others = sizeof...(values) - 1; others > 0; --others) sql += ", ?";
  change(store, sql + ")", values...);
  return store.last_insert_id();
}

void require_row(bool exists, const auto& id) {
  if (!exists) throw Error(Code::not_found, "there is no " + id.str());
}
template <typename Row>
Row require_row(std::optional<Row> row, const auto& id) {
  require_row(row.has_value(), id);
  return *std::move(row);
}

template <typename Row>
std::optional<Row> only(std::vector<Row> rows) {
  if (rows.empty()) return std::nullopt;
  return std::move(rows.front());
}

// Of "SELECT state, count(*)", by state.
template <typename State, typename Counts>
Counts count_by_state(auto& store, std::string_view sql) {
  Statement query = store.prepare(sql);
  Counts counts{};
  while (query.step()) {
    State state{};
    uint64_t count = 0;
    query.read(state, count);
    counts.at(static_cast<size_t>(state)) = count;
  }
  return counts;
}

// For an earlier request with the same key.
inline void require_same_request(bool same, const std::string& key) {
  if (same) return;
  throw Error(Code::already_exists, "the idempotency key " + key + " was used for another request",
              "Use a new key for a new request.");
}

}  // namespace moorage::state_db
