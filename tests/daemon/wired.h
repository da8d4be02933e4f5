// The services as in the daemon, on their own store, without a backend that runs anything: the
// tests read rows and journals that they write by hand.
#pragma once

#include <map>
#include <string>

#include "base/wire/journal.h"
#include "daemon/routes/routes.h"
#include "served.h"
#include "state_db/store.h"

namespace moorage::daemon {

class Wired {
 public:
  Wired();

  // A workspace of this user with a running sandbox.
  base::WorkspaceId make_workspace(const std::string& name, uint32_t owner);
  // A running exec with an empty, watched journal.
  base::ExecId make_exec(base::WorkspaceId workspace, bool with_journal = true);
  void write_frame(base::ExecId exec, base::FrameKind kind, const std::string& payload);
  void remove_journal(base::ExecId exec);
  void end(base::ExecId exec, int exit_code);  // writes the frame, waits for the row's outcome

  Api& api() { return services_; }
  InfoSource& info() { return info_; }
  PolicyRead next_read;  // what the next reload reads
  std::string refusal;   // instead, the error that it meets
  workspace::Execs& execs() { return services_.execs; }
  state_db::Store& store() { return store_; }

 private:
  std::string journal_path(base::ExecId exec);

  TemporaryDirectory directory_;
  state_db::Store store_;
  EventHub events_;
  workspace::Services services_;
  PolicyReload policy_;
  InfoSource info_;
  std::map<base::ExecId, uint64_t> output_bytes_;
};

}  // namespace moorage::daemon
