// Execs: one row per command, kept after its sandbox is removed. create() is one commit (row and
// event), and so is finish() (state, numbers, event). argv and environment: any bytes but NUL.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "state_db/lifecycle.h"
#include "state_db/tables/exec_category.h"
#include "state_db/tables/viewer.h"

namespace moorage::state_db {

class Store;

struct NewExec {
  base::WorkspaceId workspace{};
  base::SandboxId sandbox{};
  uint32_t owner_uid = 0;
  std::optional<std::string> idempotency_key{};  // one exec for (workspace, key)
  std::string request_hash{};
  std::vector<std::string> argv{};
  std::map<std::string, std::string> environment{};  // variables added by the request
  std::string directory{};
  std::string user{};
  bool terminal = false;
  bool input = false;
  bool merged = false;       // both output streams by one pipe
  int64_t timeout_ms = 0;    // 0: none
  std::string time_limit{};  // source of a timeout that the request did not set; reported on expiry
  std::string hook{};        // "pre_stop" for the workspace's hook, which its budget does not count
};

uint64_t text_bytes(const NewExec& request);  // of arguments, environment and directory

struct ExecOutcome {
  ExecState state = ExecState::exited;  // any but running
  std::optional<int> exit_code{};
  std::optional<int> signal{};
  std::optional<ExecCategory> category{};
  std::string error{};         // why it could not start or was interrupted
  int64_t ended_wall_ms = 0;   // 0: now
  uint64_t output_bytes = 0;   // the offset where its output ended
  uint64_t omitted_bytes = 0;  // bytes of output missing from the journal
  int64_t user_ms = 0;
  int64_t system_ms = 0;
  uint64_t max_rss_bytes = 0;
  std::optional<uint64_t> input_read{};  // bytes of standard input that it read, if it has a pipe
  int64_t ran_ms = 0;                    // wall time charged to its workspace's budget
};

struct ExecRow {
  base::ExecId id{};
  NewExec request{};
  ExecState state = ExecState::running;
  bool cancel_requested = false;
  std::optional<int> sent_signal{};  // the last one sent through the API
  std::string sent_by{};             // its sender; empty: the exec's owner
  int64_t started_wall_ms = 0;
  ExecOutcome outcome{};                    // only if state is not running
  std::optional<uint64_t> changed_files{};  // of its workspace after it ended; unset: not counted
  std::string imported_from{};              // "STORE_ID/ex_N" if imported; empty: it ran here
};

// A command and its environment may take 2 MiB, and more in an archive. A list omits the
// environment and ends after this many bytes of commands, but holds at least one row.
inline constexpr uint64_t kMostListedBytes = 8 << 20;
// Thousands of execs may run and are polled often: their rows carry this many bytes of their
// arguments, and no environment.
inline constexpr uint64_t kMostRunningBytes = 4096;

struct ExecQuery {
  base::WorkspaceId workspace{};    // 0: any
  base::SandboxId sandbox{};        // 0: any
  std::optional<Viewer> seen_by{};  // user who may see the exec's workspace
  std::optional<ExecState> state{};
  base::ExecId before{};  // older than this one; 0: from the newest
  size_t limit = 1000;
};

class ExecTable {
 public:
  explicit ExecTable(Store& store) : store_(store) {}

  struct Created {
    base::ExecId id{};
    bool existed = false;  // an earlier request with this key created it: nothing to write or run
  };
  // In `running`. already_exists: the key belongs to another request. resource_exhausted: its
  // workspace has used up its commands (max_execs).
  Created create(const NewExec& request);
  // running -> outcome.state. conflict: it has already ended.
  void finish(base::ExecId id, const ExecOutcome& outcome);
  // Adds an exec that ran and ended in another store, under a new id: only imported_from shows the
  // old row.id. No event, as nothing happened here, and no budget applies.
  base::ExecId add_past(const ExecRow& row);
  // Removes those rows after a failed import or a purge, in several commits and outside of a
  // transaction, so that the log never holds them all.
  void forget_past(base::WorkspaceId workspace);
  void set_changed_files(base::ExecId id, uint64_t files);
  // Recorded before the output of an ended exec is removed. Numbers only grow.
  struct Output {
    uint64_t bytes = 0;  // total, including output after its end
    uint64_t omitted_bytes = 0;
  };
  void raise_output(base::ExecId id, const Output& output);
  // True if it runs: the mark is durable, and the record of its end will contain `why`. False if it
  // has ended.
  bool request_cancel(base::ExecId id, const std::string& why);
  // For a running exec, to appear in the record of its end.
  void note_signal(base::ExecId id, int signal, const std::string& by);

  ExecRow get(base::ExecId id);  // not_found
  std::optional<ExecRow> find(base::ExecId id);
  std::optional<ExecRow> find_by_key(base::WorkspaceId workspace, const std::string& key);
  void forget_key(base::ExecId id);  // of an exec that never began: the key becomes reusable
  // Newest first; for the next page pass the last row as `before`.
  std::vector<ExecRow> list(const ExecQuery& query = {});
  bool has_older(const ExecRow& exec);  // in its workspace
  // All of a workspace, from the index: 4 ms for 100,000.
  uint64_t count(base::WorkspaceId workspace);
  // Of a workspace, oldest first, starting after `after`.
  std::vector<ExecRow> list_after(base::WorkspaceId workspace, base::ExecId after, size_t limit);
  std::vector<ExecRow> running(base::SandboxId sandbox);  // shortened, like all running ones
  std::vector<ExecRow> running();
  uint64_t count_running();
  uint64_t count_running(base::WorkspaceId workspace);

 private:
  Store& store_;
};

}  // namespace moorage::state_db
