// Execs: one row a command, kept after its sandbox is gone. create() is one commit (row and event),
// and so is finish() (state, numbers, event). argv and environment may hold any bytes but NUL.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "state_db/exec_category.h"
#include "state_db/lifecycle.h"
#include "state_db/viewer.h"

namespace moorage::state_db {

class Store;

struct ExecRequest {
  base::WorkspaceId workspace{};
  base::SandboxId sandbox{};
  uint32_t owner_uid = 0;
  std::optional<std::string> idempotency_key{};  // one exec for (workspace, key)
  std::string request_hash{};
  std::vector<std::string> argv{};
  std::map<std::string, std::string> environment{};  // what the request added
  std::string directory{};
  std::string user{};
  bool terminal = false;
  bool input = false;
  int64_t timeout_ms = 0;    // 0: none
  std::string time_limit{};  // whose timeout that is, if not the request's: told if it runs out
  std::string hook{};        // "pre_stop": the workspace's own; such do not count for its budget
};

uint64_t text_bytes(const ExecRequest& request);  // of arguments, environment and directory

struct ExecOutcome {
  ExecState state = ExecState::exited;  // any but running
  std::optional<int> exit_code{};
  std::optional<int> signal{};
  std::optional<ExecCategory> category{};
  std::string error{};         // why it could not be started, why it was interrupted
  int64_t ended_wall_ms = 0;   // 0: now
  uint64_t output_bytes = 0;   // the offset where its output ended
  uint64_t omitted_bytes = 0;  // of its output that are not in the journal
  int64_t user_ms = 0;
  int64_t system_ms = 0;
  uint64_t max_rss_bytes = 0;
  int64_t ran_ms = 0;  // wall time that its workspace's budget is charged
};

struct ExecRow {
  base::ExecId id{};
  ExecRequest request{};
  ExecState state = ExecState::running;
  bool cancel_requested = false;
  std::optional<int> sent_signal{};  // the last one that the API sent to it
  std::string sent_by{};             // who that was; empty: who runs it
  int64_t started_wall_ms = 0;
  ExecOutcome outcome{};                    // only if state is not running
  std::optional<uint64_t> changed_files{};  // of its workspace, as it left them; unset: not counted
  std::string imported_from{};              // "STORE_ID/ex_N": it ran there; empty: it ran here
};

// A command and its environment may take 1 MiB, and more in an archive: a list has no environment,
// and ends early, with at least one, where its commands take more than this.
inline constexpr uint64_t kMostListedBytes = 8 << 20;
// Thousands may run, and are looked at all the time: of their arguments there are so many bytes,
// and nothing of their environment.
inline constexpr uint64_t kMostRunningBytes = 4096;

struct ExecQuery {
  base::WorkspaceId workspace{};    // 0: any
  base::SandboxId sandbox{};        // 0: any
  std::optional<Viewer> seen_by{};  // who sees the exec's workspace
  std::optional<ExecState> state{};
  base::ExecId before{};  // older than this one; 0: from the newest
  size_t limit = 1000;
};

class Execs {
 public:
  explicit Execs(Store& store) : store_(store) {}

  struct Created {
    base::ExecId id{};
    bool existed = false;  // the key had made it before: nothing was written, nothing must run
  };
  // In `running`. already_exists: the key was used for another request. resource_exhausted: its
  // workspace may run no more commands (max_execs).
  Created create(const ExecRequest& request);
  // running -> outcome.state. conflict: it has ended already.
  void finish(base::ExecId id, const ExecOutcome& outcome);
  // One that ran and ended in another store, with a new id: of row.id only imported_from tells. No
  // event of it, as nothing happened here, and no budget refuses it.
  base::ExecId add_past(const ExecRow& row);
  // Those, of an import that failed or a purge: in several commits, and not within a transaction,
  // so that the log never holds all of it.
  void forget_past(base::WorkspaceId workspace);
  void set_changed_files(base::ExecId id, uint64_t files);
  // Of one that ended, when its output is about to be removed. Numbers only grow.
  struct Output {
    uint64_t bytes = 0;  // that there were, with what came after its end
    uint64_t omitted_bytes = 0;
  };
  void raise_output(base::ExecId id, const Output& output);
  // True if it runs: the mark is durable, and `why` is in the record of its end. False if it has
  // ended.
  bool request_cancel(base::ExecId id, const std::string& why);
  // Of one that runs, for the record of its end.
  void note_signal(base::ExecId id, int signal, const std::string& by);

  ExecRow get(base::ExecId id);  // not_found
  std::optional<ExecRow> find(base::ExecId id);
  std::optional<ExecRow> find_by_key(base::WorkspaceId workspace, const std::string& key);
  void forget_key(base::ExecId id);  // of one that never began: the key may be used again
  // Newest first; the next ones are those before the last.
  std::vector<ExecRow> list(const ExecQuery& query = {});
  bool has_older(const ExecRow& exec);  // in its workspace
  // Of a workspace, oldest first, those newer than `after`.
  std::vector<ExecRow> list_after(base::WorkspaceId workspace, base::ExecId after, size_t limit);
  std::vector<ExecRow> running(base::SandboxId sandbox);  // shortened, as all that run
  std::vector<ExecRow> running();
  uint64_t count_running();
  uint64_t count_running(base::WorkspaceId workspace);

 private:
  Store& store_;
};

}  // namespace moorage::state_db
