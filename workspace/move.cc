// Workspaces::change_place. The next sandbox is made, and its warden answers, before the former one
// is touched: whatever its backend, engine or image cannot do shows there. Only one of them ever
// has the workspace: a second overlay over one upper directory is what nobody may make.
#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mount.h"
#include "base/mount_namespace.h"
#include "state_db/store.h"
#include "workspace/sandbox_mounts.h"
#include "workspace/workspaces.h"

namespace moorage::workspace {
namespace {

using base::Error;

MOORAGE_CRASH_POINT(after_intent, "move.after_intent");
MOORAGE_CRASH_POINT(after_standby, "move.after_standby");
MOORAGE_CRASH_POINT(after_stop, "move.after_stop");
MOORAGE_CRASH_POINT(after_mount, "move.after_mount");
MOORAGE_CRASH_POINT(after_outcome, "move.after_outcome");

}  // namespace

void Workspaces::change_place(const state_db::WorkspaceRow& row, const state_db::Place& place,
                              const std::string& by) {
  state_db::WorkspaceRow moved = row;
  moved.backend = place.backend;
  moved.image = place.image;
  moved.runtime = place.runtime;
  auto wanted = sandbox_for(moved);
  state_db::Sandboxes sandboxes(context_.store);
  if (const auto old = sandboxes.live(row.id); old && !active_.running(row.id))
    clear_sandbox(*old, "found dead at a move");
  if (!active_.running(row.id)) {
    state_db::Workspaces(context_.store).set_place(row.id, place, by);
    return after_outcome.pass();
  }
  wanted.standby = true;
  const auto sandbox = sandboxes.create(wanted);
  after_intent.pass();
  bool stopped = false;
  std::shared_ptr<const Running> running;
  try {
    Running standby = begin_sandbox(moved, sandbox, nullptr);
    after_standby.pass();
    bring_to_rest(row, "moved to " + place.backend + " by " + by);
    stopped = true;
    after_stop.pass();
    running = hand_over(row.id, sandbox, std::move(standby),
                        [&] { state_db::Workspaces(context_.store).set_place(row.id, place, by); });
  } catch (Error& error) {
    clear_sandbox(sandboxes.get(sandbox.id), error.message());
    if (stopped) go_back(row.id);
    throw error.add_context(row.name + " was not moved");
  }
  after_outcome.pass();
  take_up(running);
}

// The workspace, at rest, to the sandbox that stands by. Its policy may have changed the layer when
// the former one was stopped.
std::shared_ptr<const Running> Workspaces::hand_over(base::WorkspaceId id,
                                                     const state_db::SandboxRow& sandbox,
                                                     Running standby,
                                                     const std::function<void()>& also) {
  const auto row = state_db::Workspaces(context_.store).get(id);
  const Chain layers = chain(row);
  context_.store.transaction([&] { integrity_.begin_writing(id); });
  const ActiveMounts mounts = mount_layers(layers, first_id_of(sandbox));
  base::in_mount_namespace(standby.init, [&] {
    base::attach_mount(mounts.tree.get(), kTreePlace);
    base::attach_mount(mounts.home.get(), kHomePlace);
  });
  after_mount.pass();
  return set_running(sandbox, std::move(standby), mounts, also);
}

// A move failed when the former sandbox had ended already: another one like it.
void Workspaces::go_back(base::WorkspaceId id) {
  try {
    start_sandbox(state_db::Workspaces(context_.store).get(id));
  } catch (const Error& error) {  // the next command tries again, and says what is wrong
    base::log(base::LogLevel::warning, "workspace.not_back",
              {{"ws", id}, {"error", error.message()}});
  }
}

}  // namespace moorage::workspace
