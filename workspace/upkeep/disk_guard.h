// Keeps the store's file system from filling up completely (workspace/context/free_space.h). Checks
// every second. Below half of the reserve it ends the fastest writer, one for each check, until
// free space stops falling: a command, measured by the pages that its processes dirtied and by its
// output; or, if no command wrote, the sandbox whose leftover processes write, by stopping it. It
// never ends anything that does not write, whoever else uses the space. Every level change and
// every end is an event; the level recovers by itself.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "workspace/context/context.h"
#include "workspace/context/free_space.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/exec/watcher.h"
#include "workspace/upkeep/gc.h"
#include "workspace/verbs/start_stop.h"

namespace moorage::workspace {

class DiskGuard {
 public:
  DiskGuard(Context& context, ExecWatcher& watcher, StartStop& start_stop, Gc& gc)
      : context_(context), watcher_(watcher), start_stop_(start_stop), gc_(gc) {}

  void look();  // call from one thread only

 private:
  struct Writer {
    LiveSandbox running;
    std::optional<state_db::ExecRow> exec;  // nullopt: leftover processes of ended commands
    uint64_t grown_bytes = 0;               // since the last check
  };
  void tell(RoomLevel level, const DiskRoom& room);
  std::vector<Writer> writers();  // fastest first; grown_bytes is 0 at the first check
  uint64_t grown(const std::string& subject, uint64_t written_bytes);
  void end_one(const DiskRoom& room);
  void end(const Writer& writer, const std::string& reason);

  Context& context_;
  ExecWatcher& watcher_;
  StartStop& start_stop_;
  Gc& gc_;
  RoomLevel level_ = RoomLevel::enough;
  std::map<std::string, uint64_t> written_;  // by exec or sandbox, at the last check
  std::map<std::string, uint64_t> seen_;     // the same, for the current check
  std::optional<base::Space> before_;
};

}  // namespace moorage::workspace
