// Moves::change_place. The next sandbox is made, and its warden answers, before the former one
// stops: a failure of the new backend, engine or image shows up there. Only one of the two ever has
// the workspace mounted: two overlays must never share an upper directory.
#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/mount.h"
#include "base/os/mount_namespace.h"
#include "layers/sandbox_mounts.h"
#include "state_db/store.h"
#include "workspace/access/keyed_request.h"
#include "workspace/verbs/moves.h"

namespace moorage::workspace {
namespace {

MOORAGE_CRASH_POINT(after_intent, "move.after_intent");
MOORAGE_CRASH_POINT(after_standby, "move.after_standby");
MOORAGE_CRASH_POINT(after_stop, "move.after_stop");
MOORAGE_CRASH_POINT(after_mount, "move.after_mount");
MOORAGE_CRASH_POINT(after_outcome, "move.after_outcome");

}  // namespace

void Moves::change_place(const state_db::WorkspaceRow& row, const state_db::Place& place,
                         const Caller& caller, const std::string& notice) {
  const std::string by = "uid " + std::to_string(caller.uid);
  state_db::WorkspaceRow moved = row;
  moved.backend = place.backend;
  moved.image = place.image;
  moved.runtime = place.runtime;
  auto wanted = sandboxes_.plan(moved);
  state_db::SandboxTable sandboxes(context_.store);
  if (const auto old = sandboxes.live(row.id); old && !context_.live.running(row.id))
    sandboxes_.clear(*old, "found dead at a move");
  const auto tell_place = [&] {
    context_.store.transaction([&] {
      state_db::WorkspaceTable(context_.store).set_place(row.id, place, by);
      join_key(context_.store, caller, row.id.str() + " " + notice);
    });
  };
  if (!context_.live.running(row.id)) {
    tell_place();
    return after_outcome.pass();
  }
  const auto try_again_at_the_old_place = [&] {
    try {
      sandboxes_.start(state_db::WorkspaceTable(context_.store).get(row.id));
    } catch (const Error& failure) {  // the next command tries again, and reports the failure
      base::log(base::LogLevel::warning, "workspace.not_back",
                {{"ws", row.id}, {"error", failure.message()}});
    }
  };
  pre_stop_.run(row);  // before the next sandbox is made: it may take long
  wanted.standby = true;
  const auto sandbox = sandboxes.create(wanted);
  after_intent.pass();
  bool stopped = false;
  std::shared_ptr<const LiveSandbox> running;
  try {
    LiveSandbox standby = sandboxes_.begin(moved, sandbox, nullptr);
    after_standby.pass();
    start_stop_.bring_to_rest(row, "moved to " + place.backend + " by " + by,
                              StartStop::Hook::skip);
    stopped = true;
    after_stop.pass();
    // Its policy may have replaced the layer when the former sandbox stopped.
    const layers::Chain layers =
        chains_.chain(state_db::WorkspaceTable(context_.store).get(row.id));
    context_.store.transaction([&] { integrity_.begin_writing(row.id); });
    const layers::ActiveMounts mounts = chains_.mount(layers, sandbox.first_host_id);
    base::in_mount_namespace(standby.init, [&] {
      base::attach_mount(mounts.tree.get(), layers::kTreePlace);
      base::attach_mount(mounts.home.get(), layers::kHomePlace);
    });
    after_mount.pass();
    running = sandboxes_.finish(sandbox, std::move(standby), mounts, tell_place);
  } catch (Error& error) {
    sandboxes_.clear(sandboxes.get(sandbox.id), error.message());
    if (stopped) try_again_at_the_old_place();
    throw error.add_context(row.name + " was not moved");
  }
  after_outcome.pass();
  sandboxes_.take_up(running);
}

}  // namespace moorage::workspace
