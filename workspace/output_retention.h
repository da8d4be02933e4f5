// How long output of commands is kept: that of ended commands up to a size in each workspace, the
// oldest goes first, and for a time, if one is set. A command's record stays; who reads its output
// is told that it is gone, and where it ended (daemon/exec_output.h). A journal that the warden
// still writes late output to (warden/late_output.h) stays until nobody has it open for writing,
// and loses only what came before the command's end: a file without a name would grow where no
// limit and no reader sees it. What a running command keeps is bounded by itself
// (journal_middle.h). Time is the store's own age: no jump of the wall clock removes anything, and
// it counts from when it was first seen here that the command had ended.
// Journals are counted and removed under a mutex of their workspace: nobody waits for another
// one's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
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
  struct Counted {
    std::mutex mutex;
    std::optional<uint64_t> bytes;  // of all journals; nothing: not counted yet
  };
  std::shared_ptr<Counted> counted_of(base::WorkspaceId workspace);
  void forget(base::WorkspaceId workspace);  // the next command's end counts anew
  // `newest` is kept in any case.
  void count(base::WorkspaceId workspace, base::ExecId newest);
  uint64_t shrink(base::WorkspaceId workspace, base::ExecId newest);  // what is left, in bytes
  void sweep_workspace(base::WorkspaceId workspace, int64_t now_ms);
  // What the disk has back.
  uint64_t remove(base::WorkspaceId workspace, const Journal& journal, const char* why);

  Context& context_;
  const Rules rules_;
  std::mutex mutex_;  // of the map alone
  std::map<base::WorkspaceId, std::shared_ptr<Counted>> counted_;
};

}  // namespace moorage::workspace
