// How long output of commands is kept: that of ended commands up to a size in each workspace, the
// oldest goes first, and for a time, if one is set. A command's record stays; who reads its output
// is told that it is gone, and where it ended (daemon/exec_output.h). A journal that the warden
// still writes late output to (warden/late_output.h) stays until nobody has it open for writing,
// and loses only what came before the command's end: a file without a name would grow where no
// limit and no reader sees it. What a running command keeps is bounded by itself
// (journal_middle.h). Time is the store's own age: no jump of the wall clock removes anything, and
// it counts from when it was first seen here that the command had ended.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "state_db/execs.h"
#include "workspace/context.h"

namespace moorage::workspace {

class OutputRetention {
 public:
  struct Rules {
    uint64_t workspace_bytes = 0;  // of the disk; 0: no limit
    int64_t keep_ms = 0;           // 0: for ever
  };
  OutputRetention(Context& context, Rules rules) : context_(context), rules_(rules) {}

  void ended(const state_db::ExecRow& exec);  // one command; may take long, must not throw
  void sweep();                               // now and then: what is older than its time

 private:
  struct Journal {
    base::ExecId exec{};
    std::string directory;
    uint64_t bytes = 0;
  };
  std::vector<Journal> journals_of(base::WorkspaceId workspace) const;  // oldest first
  std::optional<uint64_t> bytes_at_end(base::ExecId exec);  // of output; nothing: it runs
  // The mutex is held, of these two. `newest` is kept in any case.
  void count(base::WorkspaceId workspace, base::ExecId newest);
  void shrink(base::WorkspaceId workspace, base::ExecId newest);
  void sweep_workspace(base::WorkspaceId workspace, int64_t now_ms);
  // What the disk has back.
  uint64_t remove(base::WorkspaceId workspace, const Journal& journal, const char* why);

  Context& context_;
  const Rules rules_;
  std::mutex mutex_;
  std::map<base::WorkspaceId, uint64_t> bytes_;  // of all journals; absent: not counted yet
};

}  // namespace moorage::workspace
