#include "state_db/operations.h"

#include "base/clock.h"
#include "base/error.h"
#include "state_db/statement.h"
#include "state_db/store.h"

namespace moorage::state_db {

using base::Code;
using base::Error;

namespace {

template <typename... Values>
std::vector<OperationRow> select(Store& store, std::string_view rest, const Values&... values) {
  Statement query = store.prepare(
      "SELECT id, kind, repository, workspace, state, detail, reason, started_wall_ms, "
      "ended_wall_ms "
      "FROM operations " +
      std::string(rest));
  query.bind(values...);
  std::vector<OperationRow> rows;
  while (query.step()) {
    OperationRow& row = rows.emplace_back();
    query.read(row.id, row.kind, row.repository, row.workspace, row.state, row.detail, row.error,
               row.started_wall_ms, row.ended_wall_ms);
  }
  return rows;
}

void end(Store& store, base::OperationId id, OperationState state, const std::string& error) {
  store.transaction([&] {
    store.move(id, OperationState::running, state, error);
    store.prepare("UPDATE operations SET ended_wall_ms = ? WHERE id = ?")
        .run(store.clock().wall_ms(), id);
  });
}

}  // namespace

base::OperationId Operations::begin(const NewOperation& operation) {
  return store_.transaction([&] {
    store_
        .prepare(
            "INSERT INTO operations (kind, repository, workspace, state, detail, started_wall_ms) "
            "VALUES (?, ?, ?, ?, ?, ?)")
        .run(operation.kind, operation.repository, operation.workspace,
             LifeCycle<OperationState>::kFirst, operation.detail, store_.clock().wall_ms());
    const base::OperationId id{store_.last_insert_id()};
    store_.record_new<OperationState>(id, operation.kind);
    return id;
  });
}

void Operations::set_done(base::OperationId id) { end(store_, id, OperationState::done, {}); }

void Operations::set_failed(base::OperationId id, const std::string& error) {
  end(store_, id, OperationState::failed, error);
}

OperationRow Operations::get(base::OperationId id) {
  auto rows = select(store_, "WHERE id = ?", id);
  if (rows.empty()) throw Error(Code::not_found, "there is no " + id.str());
  return std::move(rows.front());
}

std::vector<OperationRow> Operations::running() {
  return select(store_, "WHERE state = 'running' ORDER BY id");
}

std::vector<OperationRow> Operations::list(size_t limit) {
  return select(store_, "ORDER BY id DESC LIMIT ?", limit);
}

}  // namespace moorage::state_db
