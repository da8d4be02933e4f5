#include "workspace/verbs/moves.h"

#include "backends/registry.h"
#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/os/mount.h"
#include "base/os/namespaces.h"
#include "base/os/open_beneath.h"
#include "layers/sandbox_mounts.h"
#include "state_db/store.h"
#include "state_db/tables/layers.h"
#include "workspace/access/keyed_request.h"
#include "workspace/access/placement.h"
#include "workspace/context/waiters.h"

namespace moorage::workspace {
namespace {

using state_db::WorkspaceState;

MOORAGE_CRASH_POINT(after_intent, "move.after_intent");
MOORAGE_CRASH_POINT(after_standby, "move.after_standby");
MOORAGE_CRASH_POINT(after_stop, "move.after_stop");
MOORAGE_CRASH_POINT(after_mount, "move.after_mount");
MOORAGE_CRASH_POINT(after_outcome, "move.after_outcome");

constexpr std::chrono::milliseconds kLookAgain{100};

void require_movable(const state_db::WorkspaceRow& row) {
  if (row.state == WorkspaceState::ready || row.state == WorkspaceState::archived) return;
  throw Error(Code::conflict, row.name + " is " + std::string(state_db::state_name(row.state)),
              "only a ready or archived workspace can be moved");
}

state_db::Place place_of(const state_db::WorkspaceRow& row) {
  return {row.backend, row.image, row.runtime};
}

// A runtime belongs to an engine, an image to a backend, so neither moves to another backend.
state_db::Place wanted_place(const state_db::WorkspaceRow& row, const MoveRequest& request) {
  const std::string backend = request.backend.value_or(row.backend);
  const bool same = backend == row.backend;
  return {backend, request.image.value_or(same ? row.image : "host"),
          request.runtime.value_or(same ? row.runtime : "")};
}

// A system delta belongs to exactly one image.
void refuse_system_delta(Context& context, const state_db::WorkspaceRow& row,
                         const state_db::Place& to) {
  if (to.image == row.image || !row.layer) return;
  for (const auto& layer : state_db::LayerTable(context.store).chain(row.layer)) {
    const std::string upper = context.storage.layer_path(layer.id) + "/system/upper";
    if (!base::path_exists(upper) || base::directory_is_empty(upper)) continue;
    throw Error(Code::unsupported,
                row.name + " has changes to its system, which belong to image " + row.image +
                    " and cannot go to image " + to.image,
                "move it with --image " + row.image + ", or fork it from an earlier snapshot");
  }
}

}  // namespace

MovePlan Moves::plan(const state_db::WorkspaceRow& row, const MoveRequest& request) {
  require_movable(row);
  MovePlan plan;
  plan.from.place = place_of(row);
  plan.to.place = wanted_place(row, request);
  check_placement(context_, row, plan.to.place);
  const auto& limits = row.policy.limits;
  check_backend_accepts(context_, plan.to.place, {limits.memory_bytes, limits.cpus, limits.pids});
  refuse_system_delta(context_, row, plan.to.place);
  const auto can = context_.backends.get(plan.to.place.backend).capabilities();
  const auto to = backends::isolation_of(can, plan.to.place.runtime);
  plan.to.isolation = backends::isolation_name(to);
  if (auto* former = context_.backends.find(row.backend)) {
    const auto could = former->capabilities();
    const auto known = could.runtimes.find(row.runtime);
    const auto from = known == could.runtimes.end() ? could.isolation : known->second;
    plan.from.isolation = backends::isolation_name(from);
    if (to < from) {
      plan.notices.push_back("isolation becomes " + plan.to.isolation + "; it is " +
                             plan.from.isolation + " now");
    }
    if (context_.options.sudo && could.sudo && !can.sudo) {
      plan.notices.push_back((can.root ? "sudo is" : "sudo and root are") +
                             std::string(" not available at the new place"));
    }
  }
  if (plan.from.place.image != plan.to.place.image) {
    plan.notices.push_back("programs come from image " + plan.to.place.image +
                           " after the move, not from " + plan.from.place.image);
  }
  for (const auto& exec : state_db::ExecTable(context_.store).running()) {
    if (exec.request.workspace == row.id) plan.execs.push_back(exec.id);
  }
  if (const auto running = context_.live.running(row.id)) {
    plan.running = true;
    if (running->remote)  // the processes there are not known here
      plan.notices.emplace_back("background processes end, if commands left any");
    else if (plan.execs.empty() && !running->backend->members(running->name).empty())
      plan.notices.emplace_back("background processes that commands left running end");
  }
  return plan;
}

MovePlan Moves::check(const Caller& caller, const std::string& name, const MoveRequest& request) {
  const auto row = find_workspace(context_.store, caller, name, Right::destroy);
  leases_.check(caller, row);
  return plan(row, request);
}

void Moves::cancel_all(const Caller& caller, const MovePlan& plan) {
  Caller keyless = caller;  // the request's key belongs to the move
  keyless.keyed.reset();
  for (const auto exec : plan.execs) {
    try {
      execs_.cancel(keyless, exec, "moved to " + plan.to.place.backend + " at once");
    } catch (const Error& error) {
      if (error.code() != Code::conflict) throw;  // conflict: it has ended meanwhile
    }
  }
}

void Moves::move_once(const Caller& caller, base::WorkspaceId id, const state_db::Place& place,
                      const std::string& notice) {
  const auto guard = context_.locks.lock(id.str(), "move");
  const auto row = chains_.settled(state_db::WorkspaceTable(context_.store).get(id));
  require_movable(row);
  if (place_of(row) == place) return;
  const auto writing = leases_.write(caller, row);
  start_stop_.refuse_busy(row);
  change_place(row, place, caller, notice);
  base::log(base::LogLevel::info, "workspace.moved",
            {{"ws", row.id}, {"from", row.backend}, {"to", place.backend}, {"image", place.image}});
}

WorkspaceView Moves::move(const Caller& caller, const std::string& name,
                          const MoveRequest& request) {
  const auto row = find_workspace(context_.store, caller, name, Right::destroy);
  leases_.check(caller, row);
  const MovePlan plan = this->plan(row, request);
  std::string notice;
  for (const auto& text : plan.notices) notice += (notice.empty() ? "" : "; ") + text;
  if (plan.from.place == plan.to.place) {
    notice = row.name + " is already there";
    join_key(context_.store, caller, row.id.str() + " " + notice);
  } else {
    if (request.now) cancel_all(caller, plan);
    try {
      move_once(caller, row.id, plan.to.place, notice);
    } catch (const Error& error) {
      const auto now = Waiting::Clock::now();
      if (error.code() != Code::conflict || now >= caller.asked + request.wait) throw;
      throw Waiting(plan.execs, error.message(), now + kLookAgain);
    }
  }
  auto view = views_.look(row.id);
  view.notice = notice;
  return view;
}

WorkspaceView Moves::resume(const std::string& joined) {
  const size_t end = joined.find(' ');
  auto view = views_.look(base::WorkspaceId::parse(joined.substr(0, end)).value());
  view.notice = joined.substr(end + 1);
  return view;
}

// The next sandbox is made, and its warden answers, before the former one stops: a failure of the
// new backend, engine or image shows up there. Only one of the two ever has the workspace mounted:
// two overlays must never share an upper directory.
void Moves::change_place(const state_db::WorkspaceRow& row, const state_db::Place& place,
                         const Caller& caller, const std::string& notice) {
  const std::string by = user_name(caller.uid);
  state_db::WorkspaceRow moved = row;
  moved.backend = place.backend;
  moved.image = place.image;
  moved.runtime = place.runtime;
  auto wanted = sandboxes_.plan(moved);
  state_db::SandboxTable sandboxes(context_.store);
  if (const auto old = sandboxes.live(row.id); old && !context_.live.running(row.id))
    sandboxes_.clear(*old, "found dead during a move");
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
    const repo_cache::BaseTreePlaces below = chains_.base_tree_of(moved);
    LiveSandbox standby = sandboxes_.begin(moved, sandbox, below.tree, nullptr);
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
    sandboxes_.send_layers(standby, layers, sandbox.first_host_id);
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
