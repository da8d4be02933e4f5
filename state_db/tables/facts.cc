#include "state_db/tables/facts.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "state_db/rows.h"
#include "state_db/store.h"

namespace moorage::state_db {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kTables{{
    {base::RepoId::kPrefix, "repositories"},
    {base::LayerId::kPrefix, "layers"},
    {base::WorkspaceId::kPrefix, "workspaces"},
    {base::SandboxId::kPrefix, "sandboxes"},
    {base::ExecId::kPrefix, "execs"},
    {base::SnapshotId::kPrefix, "snapshots"},
}};

std::string_view table_of(std::string_view prefix) {
  for (const auto& [known, table] : kTables) {
    if (known == prefix) return table;
  }
  throw Error(Code::internal, "unknown id prefix " + std::string(prefix));
}

}  // namespace

std::optional<std::string> find_fact(Store& store, const std::string& name) {
  Statement query = store.prepare("SELECT value FROM meta WHERE name = ?");
  return query.value<std::string>(name);
}

void set_fact(Store& store, const std::string& name, const std::string& value) {
  store.transaction(
      [&] { insert(store, "INSERT OR REPLACE INTO meta (name, value)", name, value); });
}

// sqlite_sequence has a row for each AUTOINCREMENT table that ever had rows, and may be written
// (sqlite.org/autoinc.html).
bool raise_counter(Store& store, std::string_view prefix, int64_t used) {
  const std::string_view table = table_of(prefix);
  return store.transaction([&] {
    Statement query = store.prepare("SELECT seq FROM sqlite_sequence WHERE name = ?");
    const auto last = query.value<int64_t>(table);
    if (last.value_or(0) >= used) return false;
    change(store,
           last ? "UPDATE sqlite_sequence SET seq = ?2 WHERE name = ?1"
                : "INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)",
           table, used);
    return true;
  });
}

}  // namespace moorage::state_db
