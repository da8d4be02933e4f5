// The verb `move`: the same workspace (id, path, files, history, lease) in sandboxes of another
// backend, image or runtime. What the new place cannot carry is refused, or told, before anything
// is stopped.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "workspace/execs.h"
#include "workspace/workspaces.h"

namespace moorage::workspace {

struct MoveRequest {
  std::optional<std::string> backend{};  // unset: as it is now
  std::optional<std::string> image{};    // unset: as it is now; `host` where the backend changes
  std::optional<std::string> runtime{};  // unset: the usual one; as now where nothing else changes
  bool now = false;                      // running commands are cancelled instead of waited for
  std::chrono::milliseconds wait{0};     // for them to end
};

struct MovePlan {
  struct Side {
    state_db::Place place{};
    std::string isolation{};
  };
  Side from{};
  Side to{};
  bool running = false;                // a sandbox runs, and will be replaced
  std::vector<base::ExecId> execs{};   // commands that are waited for
  std::vector<std::string> notices{};  // what the new place does not carry, and what ends
};

class Moves {
 public:
  Moves(Context& context, Workspaces& workspaces, Execs& execs, Active& active)
      : context_(context), workspaces_(workspaces), execs_(execs), active_(active) {}

  // What a move would do; throws what it would refuse.
  MovePlan check(const Caller& caller, const std::string& name, const MoveRequest& request);
  // conflict: commands still run after `wait`; nothing was changed. Throws Waiting until then. Is
  // there already: fine.
  WorkspaceView move(const Caller& caller, const std::string& name, const MoveRequest& request);
  // The same answer, of what change_place joined to the key of a move before the daemon died.
  WorkspaceView resume(const std::string& joined);

 private:
  MovePlan plan(const state_db::WorkspaceRow& row, const MoveRequest& request);
  void cancel_all(const Caller& caller, const MovePlan& plan);
  void move_once(const Caller& caller, base::WorkspaceId id, const state_db::Place& place,
                 const std::string& notice);

  Context& context_;
  Workspaces& workspaces_;
  Execs& execs_;
  Active& active_;
};

}  // namespace moorage::workspace
