// Checks what a workspace allows its commands (state_db/tables/workspace_policy.h) before the
// record is made. The commit that makes the record checks the count again.
#include <algorithm>

#include "base/error.h"
#include "base/size_text.h"
#include "workspace/verbs/execs.h"

namespace moorage::workspace {
namespace {

[[noreturn]] void refuse(const state_db::WorkspaceRow& row, const std::string& used,
                         const std::string& option) {
  throw Error(Code::resource_exhausted, row.name + " has used its budget: " + used,
              "raise it: moorage set " + row.name + " " + option);
}

void cut(state_db::NewExec& record, int64_t most_ms, const std::string& why) {
  if (record.timeout_ms > 0 && record.timeout_ms <= most_ms) return;
  record.timeout_ms = most_ms;
  record.time_limit = why;
}

}  // namespace

void Execs::apply_budget(const state_db::WorkspaceRow& row, state_db::NewExec& record) {
  const auto& policy = row.policy;
  if (policy.max_execs > 0 && row.used_execs >= policy.max_execs) {
    refuse(row,
           std::to_string(row.used_execs) + " of " +
               base::count_text(static_cast<uint64_t>(policy.max_execs), "command") +
               " (max_execs)",
           "--max-execs N");
  }
  if (policy.max_exec_s > 0) {
    cut(record, policy.max_exec_s * 1000,
        "a command of " + row.name + " may run " + std::to_string(policy.max_exec_s) +
            " s (max_exec_s)");
  }
  if (policy.max_exec_total_s == 0) return;
  const int64_t total_ms = policy.max_exec_total_s * 1000;
  const int64_t used_ms = row.used_exec_ms + watcher_.running_time(row.id).ms;
  const std::string of_total =
      " of " + std::to_string(policy.max_exec_total_s) + " s of commands' time (max_exec_total_s)";
  if (used_ms >= total_ms) {
    refuse(row, std::to_string(std::min(used_ms, total_ms) / 1000) + of_total,
           "--max-exec-total TIME");
  }
  const int64_t left_ms = total_ms - used_ms;
  cut(record, left_ms,
      row.name + " had only " + std::to_string((left_ms + 999) / 1000) + of_total + " left");
}

}  // namespace moorage::workspace
