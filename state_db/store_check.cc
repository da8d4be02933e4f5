// The consistency checks of Store (store.h): at the open after an unclean end, and for doctor.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/log.h"
#include "base/size_text.h"
#include "state_db/connection.h"
#include "state_db/damaged_copies.h"
#include "state_db/statement.h"
#include "state_db/store.h"

namespace moorage::state_db {
namespace {

// The full check compares every index with its table, at 10 ms per MiB; larger files get only a
// check of their pages.
constexpr int64_t kFullCheck_bytes = 64 << 20;
constexpr const char* kRestore =
    "Keep a copy of the store, then restore state.db from a backup; layers newer than the "
    "backup are kept in lost/.";

std::vector<std::string> problems_of(Connection& connection) {
  const int64_t bytes =
      connection.query_integer("PRAGMA page_count") * connection.query_integer("PRAGMA page_size");
  return connection.check(bytes <= kFullCheck_bytes ? "integrity_check" : "quick_check");
}

// Only indexes are damaged, and an index can be rebuilt from its table.
bool is_of_an_index(const std::string& problem) {
  constexpr std::array<std::string_view, 3> kWords{
      " missing from index ", "wrong # of entries in index ", "non-unique entry in index "};
  return std::any_of(kWords.begin(), kWords.end(), [&](std::string_view words) {
    return problem.find(words) != std::string::npos;
  });
}

}  // namespace

void Store::check_file() {
  const auto problems = problems_of(*connection_);
  if (problems.empty()) return;
  const std::string damage = "state.db is damaged: " + problems.front();
  if (!std::all_of(problems.begin(), problems.end(), is_of_an_index))
    throw Error(Code::corrupted, damage, kRestore);
  const auto kept = quarantine(directory_, clock_->wall_ms());
  if (kept.directory.empty()) {
    throw Error(Code::corrupted,
                damage + "; it was not repaired, because copying it failed: " + kept.why_not,
                "Free disk space, and start mooraged again.");
  }
  try {
    connection_->execute("PRAGMA synchronous = FULL; REINDEX");
  } catch (const Error& error) {
    throw Error(Code::corrupted, damage + "; rebuilding its indexes failed: " + error.message(),
                kRestore);
  }
  if (const auto left = problems_of(*connection_); !left.empty())
    throw Error(Code::corrupted, "state.db is damaged: " + left.front(), kRestore);
  repaired_ = "an index did not match its table (" + problems.front() +
              "); all indexes were rebuilt; the damaged state.db was copied to " + kept.directory;
  base::log(base::LogLevel::error, "store.mended", {{"what", repaired_}});
}

std::vector<std::string> Store::check() {
  constexpr int kBusy_ms = 5'000;
  std::vector<std::string> problems;
  Connection connection(directory_ + "/state.db", kBusy_ms);
  const std::string verdict = connection.query_text("PRAGMA integrity_check(1)");
  if (verdict != "ok") problems.push_back("SQLite finds: " + verdict);
  const std::string table = connection.query_text("PRAGMA foreign_key_check");
  if (!table.empty()) problems.push_back("a row of " + table + " refers to a missing row");
  return problems;
}

std::vector<std::string> Store::check_id_ranges() {
  std::vector<std::string> problems;
  const auto count = [&](std::string_view sql) { return prepare(sql).value<int64_t>().value(); };
  const int64_t held = count(
      "SELECT count(*) FROM id_ranges r JOIN sandboxes s ON s.id = r.sandbox "
      "WHERE s.state = 'destroyed'");
  const int64_t without = count(
      "SELECT count(*) FROM sandboxes s WHERE s.state <> 'destroyed' AND NOT EXISTS "
      "(SELECT 1 FROM id_ranges r WHERE r.sandbox = s.id)");
  const int64_t shared = count(
      "SELECT count(*) FROM id_ranges r JOIN sandboxes a ON a.id = r.sandbox "
      "JOIN sandboxes b ON b.id > a.id AND b.state <> 'destroyed' "
      "WHERE a.first_host_id <> b.first_host_id AND a.first_host_id > 0 AND b.first_host_id > 0 "
      "AND abs(a.first_host_id - b.first_host_id) < 65536");
  if (shared > 0)
    problems.push_back("ids of " + std::to_string(shared) + " sandboxes overlap those of others");
  if (held > 0)
    problems.push_back(base::count_text(static_cast<uint64_t>(held), "id range") + " " +
                       base::verb_text(static_cast<uint64_t>(held), "belong") +
                       " to destroyed sandboxes");
  if (without > 0)
    problems.push_back(base::count_text(static_cast<uint64_t>(without), "sandbox") + " " +
                       base::verb_text(static_cast<uint64_t>(without), "have") + " no id range");
  return problems;
}

}  // namespace moorage::state_db
