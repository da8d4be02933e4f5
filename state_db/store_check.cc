// The part of Store (store.h) that disbelieves it: for doctor.
#include "base/error.h"
#include "state_db/connection.h"
#include "state_db/statement.h"
#include "state_db/store.h"

namespace moorage::state_db {

std::vector<std::string> Store::check() {
  constexpr int kBusy_ms = 5'000;
  std::vector<std::string> problems;
  Connection connection(directory_ + "/state.db", kBusy_ms);
  const std::string verdict = connection.query_text("PRAGMA integrity_check(1)");
  if (verdict != "ok") problems.push_back("SQLite finds: " + verdict);
  const std::string table = connection.query_text("PRAGMA foreign_key_check");
  if (!table.empty()) problems.push_back("a row of " + table + " points at a row that is gone");
  return problems;
}

std::vector<std::string> Store::check_id_ranges() {
  std::vector<std::string> problems;
  const auto count = [&](std::string_view sql) {
    Statement query = prepare(sql);
    query.step();
    int64_t number = 0;
    query.read(number);
    return number;
  };
  const int64_t held = count(
      "SELECT count(*) FROM id_ranges r JOIN sandboxes s ON s.id = r.sandbox "
      "WHERE s.state = 'destroyed'");
  const int64_t without = count(
      "SELECT count(*) FROM sandboxes s WHERE s.state <> 'destroyed' AND NOT EXISTS "
      "(SELECT 1 FROM id_ranges r WHERE r.sandbox = s.id)");
  if (held > 0)
    problems.push_back(std::to_string(held) +
                       (held == 1 ? " id range belongs" : " id ranges belong") +
                       " to sandboxes that are gone");
  if (without > 0)
    problems.push_back(std::to_string(without) +
                       (without == 1 ? " sandbox has" : " sandboxes have") + " no id range");
  return problems;
}

}  // namespace moorage::state_db
