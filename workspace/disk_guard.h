// Keeps the store's file system from filling up to its last byte (disk_room.h). Looks each second.
// Below half of what is kept back it ends who writes most, one a look, until the free space no
// longer falls: a command by the pages that its processes made dirty and its output, and where none
// of them did, the sandbox whose leftover processes write, by stopping it. Who does not write is
// never ended, whoever else takes the space. Every level and every end is an event; the level goes
// back by itself when there is room.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "workspace/active.h"
#include "workspace/context.h"
#include "workspace/disk_room.h"
#include "workspace/exec_watcher.h"

namespace moorage::workspace {

class DiskGuard {
 public:
  struct Hooks {
    // Stops the sandbox of a workspace, whoever owns it; the reason is for people.
    std::function<void(base::WorkspaceId, const std::string& reason)> stop;
    std::function<void()> low = {};  // the level fell: what can go should go
  };
  DiskGuard(Context& context, Active& active, ExecWatcher& watcher, Hooks hooks);

  void look();  // by one thread

 private:
  struct Writer {
    Running running;
    std::optional<state_db::ExecRow> exec;  // none: what commands left running
    uint64_t grown_bytes = 0;               // since the last look
  };
  void tell(RoomLevel level, const DiskRoom& room);
  std::vector<Writer> writers();  // that most first; grown_bytes is 0 at the first look
  uint64_t grown(const std::string& subject, uint64_t written_bytes);
  void end_one(const DiskRoom& room);
  void end(const Writer& writer, const std::string& reason);

  Context& context_;
  Active& active_;
  ExecWatcher& watcher_;
  const Hooks hooks_;
  RoomLevel level_ = RoomLevel::enough;
  std::map<std::string, uint64_t> written_;  // by exec or sandbox, as of the last look
  std::map<std::string, uint64_t> seen_;     // the same, of the look that runs
  std::optional<base::Space> before_;
};

}  // namespace moorage::workspace
