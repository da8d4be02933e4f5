#include "state_db/tables/id_counters.h"

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

// sqlite_sequence has a row for each AUTOINCREMENT table that ever had rows, and may be written
// (sqlite.org/autoinc.html).
bool IdCounters::raise(std::string_view prefix, int64_t used) {
  const std::string_view table = table_of(prefix);
  return store_.transaction([&] {
    Statement query = store_.prepare("SELECT seq FROM sqlite_sequence WHERE name = ?");
    const auto last = query.value<int64_t>(table);
    if (last && *last >= used) return false;
    change(store_,
           last ? "UPDATE sqlite_sequence SET seq = ?2 WHERE name = ?1"
                : "INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)",
           table, used);
    return true;
  });
}

}  // namespace moorage::state_db
