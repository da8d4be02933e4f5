// The verb `move`: continues the same workspace (id, path, files, history, lease) in sandboxes of
// another backend, image or runtime. If the new place cannot carry something, the move refuses or
// reports it before it stops anything.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "workspace/verbs/execs.h"
#include "workspace/verbs/start_stop.h"

namespace moorage::workspace {

struct MoveRequest {
  std::optional<std::string> backend{};  // unset: the current one
  std::optional<std::string> image{};    // unset: the current one; `host` if the backend changes
  std::optional<std::string> runtime{};  // unset: the current one; the default on a new backend
  bool now = false;                      // cancel running commands instead of waiting for them
  std::chrono::milliseconds wait{0};     // how long to wait for them
};

struct MovePlan {
  struct Side {
    state_db::Place place{};
    std::string isolation{};
  };
  Side from{};
  Side to{};
  bool running = false;                // a sandbox is running and will be replaced
  std::vector<base::ExecId> execs{};   // commands that the move waits for
  std::vector<std::string> notices{};  // losses at the new place, and processes that end
};

class Moves {
 public:
  Moves(Context& context, Leases& leases, PreStop& pre_stop, Chains& chains, Sandboxes& sandboxes,
        IntegrityCheck& integrity, StartStop& start_stop, Views& views, Execs& execs)
      : context_(context),
        leases_(leases),
        pre_stop_(pre_stop),
        chains_(chains),
        sandboxes_(sandboxes),
        integrity_(integrity),
        start_stop_(start_stop),
        views_(views),
        execs_(execs) {}

  // Returns what a move would do; throws what it would refuse.
  MovePlan check(const Caller& caller, const std::string& name, const MoveRequest& request);
  // Throws conflict, with nothing changed, if commands still run after `wait`; Waiting until then.
  // A workspace that is already there is not an error.
  WorkspaceView move(const Caller& caller, const std::string& name, const MoveRequest& request);
  // The same answer, from the subject that change_place joined to the key before the daemon died.
  WorkspaceView resume(const std::string& joined);

 private:
  MovePlan plan(const state_db::WorkspaceRow& row, const MoveRequest& request);
  void cancel_all(const Caller& caller, const MovePlan& plan);
  // New sandboxes are created at `place`; the running one ends when the next one exists. A repeat
  // returns `notice`, too. Caller holds the lock.
  void change_place(const state_db::WorkspaceRow& row, const state_db::Place& place,
                    const Caller& caller, const std::string& notice);
  void move_once(const Caller& caller, base::WorkspaceId id, const state_db::Place& place,
                 const std::string& notice);

  Context& context_;
  Leases& leases_;
  PreStop& pre_stop_;
  Chains& chains_;
  Sandboxes& sandboxes_;
  IntegrityCheck& integrity_;
  StartStop& start_stop_;
  Views& views_;
  Execs& execs_;
};

}  // namespace moorage::workspace
