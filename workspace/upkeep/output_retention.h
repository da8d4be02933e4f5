// How long output of ended commands is kept: up to a size in each workspace, oldest removed first,
// and for a time, if one is set. A command's record stays; a reader of removed output learns that
// it is gone, and where it ended (daemon/routes/exec_output.h). If the warden still writes late
// output to a journal (warden/output/late_output.h), the journal stays until nobody has it open for
// writing, and only the output before the command's end is cut: an unlinked file would grow where
// no limit and no reader sees it. A running command's output has its own limit
// (base/wire/journal_middle.h). Time is the store's own age, counted from when the command was
// first seen as ended: no jump of the wall clock removes anything. Journals are counted and removed
// under a mutex for each workspace, so workspaces do not wait for each other.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "state_db/tables/execs.h"
#include "workspace/context/context.h"
#include "workspace/exec/listener.h"

namespace moorage::workspace {

class OutputRetention : public ExecListener {
 public:
  struct Rules {
    uint64_t workspace_bytes = 0;  // on disk; 0: no limit
    int64_t keep_ms = 0;           // 0: forever
  };
  OutputRetention(Context& context, Rules rules) : context_(context), rules_(rules) {}

  void exec_ended(const state_db::ExecRow& exec) override;
  void sweep();  // call now and then: removes expired output

 private:
  struct Journal {
    base::ExecId exec{};
    std::string directory;
    uint64_t bytes = 0;
  };
  std::vector<Journal> journals_of(base::WorkspaceId workspace) const;  // oldest first
  std::optional<uint64_t> bytes_at_end(base::ExecId exec);  // of output; nullopt: still running
  struct Counted {
    std::mutex mutex;
    std::optional<uint64_t> bytes;  // of all journals; nullopt: not counted yet
  };
  std::shared_ptr<Counted> counted_of(base::WorkspaceId workspace);
  void forget(base::WorkspaceId workspace);  // the next command's end counts again
  // Never removes `newest`.
  void count(base::WorkspaceId workspace, base::ExecId newest);
  uint64_t shrink(base::WorkspaceId workspace, base::ExecId newest);  // returns the bytes left
  void sweep_workspace(base::WorkspaceId workspace, int64_t now_ms);
  // Returns the freed bytes.
  uint64_t remove(base::WorkspaceId workspace, const Journal& journal, const char* why);

  Context& context_;
  const Rules rules_;
  std::mutex mutex_;  // guards only the map
  std::map<base::WorkspaceId, std::shared_ptr<Counted>> counted_;
};

}  // namespace moorage::workspace
