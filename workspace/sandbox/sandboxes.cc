#include "workspace/sandbox/sandboxes.h"

#include "backends/registry.h"
#include "backends/remote/link_client.h"
#include "backends/remote/machines.h"
#include "backends/trust.h"
#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "layers/sandbox_mounts.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store.h"
#include "state_db/store_age.h"
#include "state_db/tables/snapshots.h"
#include "workspace/access/placement.h"
#include "workspace/context/certificates.h"
#include "workspace/context/credentials.h"
#include "workspace/context/metrics.h"
#include "workspace/context/try_step.h"
#include "workspace/sandbox/given_up.h"
#include "workspace/sandbox/spending.h"

namespace moorage::workspace {
namespace {

using state_db::SandboxState;

constexpr std::chrono::milliseconds kFetchDeadline{30'000};

MOORAGE_CRASH_POINT(start_after_intent, "start.after_intent");
MOORAGE_CRASH_POINT(start_after_mount, "start.after_mount");
MOORAGE_CRASH_POINT(start_after_backend, "start.after_backend");
MOORAGE_CRASH_POINT(start_after_outcome, "start.after_outcome");
MOORAGE_CRASH_POINT(stop_after_intent, "stop.after_intent");
MOORAGE_CRASH_POINT(stop_after_backend, "stop.after_backend");

// The names by which other machines know what lies below all layers of a repository's workspaces.
backends::RemoteFiles remote_files(const Context& context, const state_db::WorkspaceRow& row,
                                   base::SandboxId sandbox, const std::string& base_tree) {
  const std::string repository = context.backends.prefix() + repo_directory(row.repository);
  // .../trees/COMMIT/tree
  const std::string of_commit = base_tree.substr(0, base_tree.rfind('/'));
  return {.generation = static_cast<uint64_t>(sandbox.value),
          .base_key = repository + "-" + of_commit.substr(of_commit.rfind('/') + 1),
          .objects_key = repository};
}

// The directories of layers as another machine gets them, oldest first.
class LayerMounts {
 public:
  LayerMounts(layers::Storage& storage, uint32_t first_host_id)
      : storage_(storage), first_host_id_(first_host_id) {}

  void add(const std::string& tree, const std::string& home) {
    layers_.push_back({.tree = bind(tree), .home = bind(home)});
  }
  void add(base::LayerId layer) {
    const std::string path = storage_.layer_path(layer);
    add(path + "/tree/upper", path + "/home/upper");
  }
  const std::vector<backends::FileLayer>& layers() const { return layers_; }

 private:
  int bind(const std::string& path) {
    if (path.empty()) return -1;
    held_.push_back(storage_.bind_files(path, first_host_id_));
    return held_.back().get();
  }

  layers::Storage& storage_;
  const uint32_t first_host_id_;
  std::vector<base::Fd> held_;
  std::vector<backends::FileLayer> layers_;
};

// The machine of a sandbox that may have changes of its own is left.
void end_here(Context& context, Chains& chains, const state_db::SandboxRow& sandbox) {
  auto& backend = context.backends.get(sandbox.backend);
  if (GivenUp(context, chains).has_more(sandbox)) return backend.machines()->leave(sandbox.name);
  backend.destroy(sandbox.name);
}

Error not_fetched(const Error& error) {
  return {
      Code::unavailable,
      "its last changes are only on the other machine and cannot be fetched: " + error.message(),
      "try again once the machine is reached; moorage stop --force goes on without them, and they "
      "come as a fork"};
}

}  // namespace

void check_backend_accepts(Context& context, const state_db::Place& place,
                           const backends::Limits& limits) {
  auto& backend = context.backends.get(place.backend);
  const auto can = backend.capabilities();
  if (!can.usable) {
    throw Error(Code::unsupported, "backend " + place.backend + " cannot be used: " + can.reason,
                "moorage info shows what this host can do");
  }
  backends::SandboxSpec spec;
  spec.name = context.backends.prefix() + "check";
  spec.image = place.image;
  spec.runtime = place.runtime;
  spec.first_host_id = can.first_host_id.value_or(context.options.sandbox_first_id);
  spec.limits = limits;
  spec.sudo = context.options.sudo && can.sudo;
  backend.check(spec);
}

state_db::NewSandbox Sandboxes::plan(const state_db::WorkspaceRow& row) {
  const auto& limits = row.policy.limits;
  check_placement(context_, row, {row.backend, row.image, row.runtime});
  check_backend_accepts(context_, {row.backend, row.image, row.runtime},
                        {limits.memory_bytes, limits.cpus, limits.pids});
  const auto can = context_.backends.get(row.backend).capabilities();
  if (can.remote) require_hours(context_, row.owner_uid);
  state_db::NewSandbox sandbox;
  sandbox.workspace = row.id;
  sandbox.backend = row.backend;
  sandbox.image = row.image;
  sandbox.runtime = row.runtime;
  sandbox.isolation = backends::isolation_name(backends::isolation_of(can, row.runtime));
  sandbox.first_host_id = can.first_host_id.value_or(0);
  sandbox.pool_first_id = context_.options.sandbox_first_id;
  sandbox.slots = context_.options.sandbox_slots;
  return sandbox;
}

LiveSandbox Sandboxes::begin(const state_db::WorkspaceRow& row, const state_db::SandboxRow& sandbox,
                             const std::string& base_tree, const layers::ActiveMounts* mounts) {
  LiveSandbox running;
  running.sandbox = sandbox.id;
  running.workspace = row.id;
  running.owner = row.owner_uid;
  running.name = sandbox.name;
  running.backend = &context_.backends.get(sandbox.backend);
  running.remote = running.backend->known_capabilities().remote;
  const uint32_t first_id = sandbox.first_host_id;
  const base::Fd objects = context_.storage.bind_read_only(
      context_.repos.objects_directory(repo_directory(row.repository)), first_id);
  backends::SandboxSpec spec;
  spec.name = sandbox.name;
  spec.directory = context_.options.sandbox_directory(sandbox.id.str());
  spec.image = sandbox.image;
  spec.runtime = sandbox.runtime;
  spec.first_host_id = first_id;
  spec.mounts = {{mounts ? mounts->tree.get() : backends::kOnlyPlace, layers::kTreePlace},
                 {mounts ? mounts->home.get() : backends::kOnlyPlace, layers::kHomePlace},
                 {objects.get(), backends::kObjectsInside}};
  const base::Fd certificates =
      context_.storage.bind_read_only(certificates_directory(context_.options.store), first_id);
  spec.mounts.push_back({certificates.get(), backends::kCertificatesInside});
  spec.certificates = certificates_directory(context_.options.store);
  const auto& limits = row.policy.limits;
  spec.limits = {limits.memory_bytes, limits.cpus, limits.pids};
  spec.sudo = context_.options.sudo && running.backend->capabilities().sudo;
  spec.labels = {{"workspace", row.id.str()}};
  spec.deadline = context_.options.start_deadline;
  base::Fd line;
  if (running.backend->known_capabilities().network_rules) line = networks_.make_line(sandbox.id);
  spec.network_line = line.get();
  base::Fd below;
  if (running.backend->known_capabilities().remote) {
    below = context_.storage.bind_files(base_tree, first_id);
    spec.mounts.push_back({below.get(), backends::kBaseInside});
    spec.remote = remote_files(context_, row, sandbox.id, base_tree);
    const base::NetworkPolicy policy = networks_.policy_of(row);
    if (base::reaches_hosts(policy)) {
      spec.provider_rules =
          base::provider_rules(row.name, policy, scopes_of(credentials_of(context_.store, row)));
    }
  }
  base::make_directories(spec.directory);
  base::write_file(spec.directory + "/" + kShowsCertificates, "", 0600);
  running.init = running.backend->start(spec).init;
  running.endpoint = running.backend->endpoint(sandbox.name);
  if (running.init.pid == 0) throw Error(Code::unavailable, "its sandbox ended immediately");
  return running;
}

void Sandboxes::send_layers(const LiveSandbox& begun, const layers::Chain& layers,
                            uint32_t first_host_id) {
  if (!begun.backend->known_capabilities().remote) return;
  LayerMounts mounts(context_.storage, first_host_id);
  mounts.add("", layers.image_home);
  for (auto delta = layers.deltas.rbegin(); delta != layers.deltas.rend(); ++delta)
    mounts.add(*delta, "");
  for (auto frozen = layers.frozen.rbegin(); frozen != layers.frozen.rend(); ++frozen)
    mounts.add(*frozen);
  mounts.add(layers.writable);
  begun.backend->attach(begun.name, mounts.layers());
}

LiveSandboxPtr Sandboxes::finish(const state_db::SandboxRow& sandbox, LiveSandbox begun,
                                 const layers::ActiveMounts& mounts, const Also& also) {
  begun.mounted =
      context_.live.share(begun.workspace, {layers::copy_sandbox_mounts(begun.init),
                                            sandbox.first_host_id + layers::kUser, begun.owner});
  context_.store.transaction([&] {
    if (also) also();
    state_db::SandboxTable(context_.store)
        .set_running(sandbox.id, {begun.init, mounts.tree_device, mounts.home_device});
  });
  return std::make_shared<const LiveSandbox>(std::move(begun));
}

void Sandboxes::take_up(const LiveSandboxPtr& running) {
  context_.live.set_running(running);
  watch(*running);
  base::log(base::LogLevel::info, "sandbox.started",
            {{"ws", running->workspace}, {"sb", running->sandbox}, {"pid", running->init.pid}});
}

void Sandboxes::watch(const LiveSandbox& running) {
  watcher_.watch_sandbox(running);
  networks_.watch(running);
}

LiveSandboxPtr Sandboxes::start(const state_db::WorkspaceRow& row, const Also& also) {
  const auto began = base::Histogram::Clock::now();
  const auto wanted = plan(row);
  const layers::Chain layers = chains_.chain(row);
  context_.live.wait_unmounted(row.id, context_.options.transfer_patience);
  state_db::SandboxTable table(context_.store);
  const auto sandbox = context_.store.transaction([&] {
    integrity_.begin_writing(row.id);
    return table.create(wanted);
  });
  start_after_intent.pass();
  std::shared_ptr<const LiveSandbox> running;
  try {
    const layers::ActiveMounts mounts = chains_.mount(layers, sandbox.first_host_id);
    start_after_mount.pass();
    auto begun = begin(row, sandbox, layers.base_tree, &mounts);
    send_layers(begun, layers, sandbox.first_host_id);
    start_after_backend.pass();
    running = finish(sandbox, std::move(begun), mounts, also);
  } catch (Error& error) {
    clear(table.get(sandbox.id), error.message());
    throw error.add_context(row.name + " could not be started");
  }
  start_after_outcome.pass();
  context_.metrics.sandbox_start.observe_since(began);
  take_up(running);
  return running;
}

std::optional<state_db::WorkspaceRow> Sandboxes::stop(const state_db::WorkspaceRow& present,
                                                      const std::string& reason,
                                                      const StopRules& rules) {
  state_db::SandboxTable table(context_.store);
  const auto sandbox = table.live(present.id);
  if (!sandbox) return std::nullopt;
  auto row = chains_.settled(present);
  if (sandbox->state == SandboxState::lost) {
    clear(*sandbox, reason);
    return std::nullopt;
  }
  if (!rules.gives_up) require_fetched(row);
  if (sandbox->state != SandboxState::stopping) {
    context_.store.transaction([&] {
      if (rules.begin) rules.begin();
      context_.store.move(sandbox->id, sandbox->state, SandboxState::stopping, reason);
    });
  }
  watcher_.forget_sandbox(sandbox->id);
  // The record of each command says who ended it, and why.
  watcher_.end_all(sandbox->id,
                   {{}, state_db::ExecCategory::stopped, "ended with its sandbox: " + reason}, {});
  stop_after_intent.pass();
  stop_backend(row, *sandbox, rules.gives_up);
  stop_after_backend.pass();
  finish_files(*sandbox);
  watcher_.settle(sandbox->id, reason);
  context_.live.clear_running(sandbox->id);
  if (GivenUp(context_, chains_).keep_base(*sandbox))
    row = state_db::WorkspaceTable(context_.store).get(row.id);
  const auto taken = sealing_.at_stop(row);
  // once stop answers, everything is durable
  base::sync_file_system(base::path_exists(context_.storage.layer_path(row.layer))
                             ? context_.storage.layer_path(row.layer)
                             : context_.options.store);
  context_.store.transaction([&] {
    table.set_stopped(sandbox->id, reason);
    integrity_.keep(row, taken);
    state_db::SnapshotTable(context_.store).set_durable(row.id);
    state_db::WorkspaceFacts facts;
    facts.rest_age_ms = state_db::StoreAge(context_.store).now_ms();
    state_db::WorkspaceTable(context_.store).set_facts(row.id, facts);
  });
  clear(table.get(sandbox->id), reason);
  return row;
}

// Before a stop. A caller may have taken it from the running ones, expecting it to end.
void Sandboxes::require_fetched(const state_db::WorkspaceRow& row) {
  const auto sandbox = state_db::SandboxTable(context_.store).live(row.id);
  if (!sandbox || sandbox->state != SandboxState::running) return;
  auto& backend = context_.backends.get(sandbox->backend);
  if (!backend.known_capabilities().remote || !base::process_alive(sandbox->init)) return;
  try {
    backends::LinkClient(backend.endpoint(sandbox->name)).sync(kFetchDeadline);
  } catch (const Error& error) {
    take_back(row, *sandbox);
    throw not_fetched(error);
  }
}

// If the last changes cannot be fetched, the sandbox runs on, without the commands that ended.
void Sandboxes::stop_backend(const state_db::WorkspaceRow& row, const state_db::SandboxRow& sandbox,
                             bool gives_up) {
  auto& backend = context_.backends.get(sandbox.backend);
  // Nobody fetches its last changes now.
  if (!base::process_alive(sandbox.init) && GivenUp(context_, chains_).has_more(sandbox))
    return end_here(context_, chains_, sandbox);
  try {
    return backend.stop(sandbox.name, context_.options.stop_grace);
  } catch (const Error& error) {
    if (!backend.known_capabilities().remote) throw;
    base::log(base::LogLevel::warning, "sandbox.not_fetched",
              {{"ws", row.id}, {"sb", sandbox.id}, {"error", error.message()}});
    if (!gives_up && !base::process_alive(sandbox.init)) throw;
    if (!gives_up) {
      context_.store.move(sandbox.id, SandboxState::stopping, SandboxState::running,
                          error.message());
      take_back(row, sandbox);
      throw not_fetched(error);
    }
  }
  end_here(context_, chains_, sandbox);
}

void Sandboxes::take_back(const state_db::WorkspaceRow& row, const state_db::SandboxRow& sandbox) {
  auto running = context_.live.running(row.id);
  if (!running) {
    running = adopt(row, sandbox, sandbox.init);
    context_.live.set_running(running);
  }
  watcher_.watch_sandbox(*running);
}

LiveSandboxPtr Sandboxes::adopt(const state_db::WorkspaceRow& row,
                                const state_db::SandboxRow& sandbox,
                                const base::ProcessIdentity& init) {
  LiveSandbox running;
  running.sandbox = sandbox.id;
  running.workspace = row.id;
  running.owner = row.owner_uid;
  running.name = sandbox.name;
  running.backend = &context_.backends.get(sandbox.backend);
  running.remote = running.backend->known_capabilities().remote;
  running.init = init;
  running.endpoint = running.backend->endpoint(sandbox.name);
  running.mounted = context_.live.share(
      row.id,
      {layers::copy_sandbox_mounts(init), sandbox.first_host_id + layers::kUser, row.owner_uid});
  return std::make_shared<const LiveSandbox>(std::move(running));
}

// Leaves no process, mount or directory behind, and the row `destroyed`. Throws if processes
// remain: the row then stays, and keeps its id range and upper directory, which nobody else may
// use.
void Sandboxes::clear(const state_db::SandboxRow& sandbox, const std::string& reason) {
  watcher_.forget_sandbox(sandbox.id);
  networks_.forget(sandbox.id);
  pre_stop_.forget(sandbox.id);
  end_here(context_, chains_, sandbox);
  finish_files(sandbox);  // before the ends of commands that wait for them
  watcher_.settle(sandbox.id, reason);
  context_.live.clear_running(sandbox.id);
  GivenUp(context_, chains_).keep_base(sandbox);
  base::remove_tree(context_.options.sandbox_directory(sandbox.id.str()));
  state_db::SandboxTable table(context_.store);
  context_.store.transaction([&] {
    note_lost(sandbox, reason);
    const auto state = table.get(sandbox.id).state;
    if (state != SandboxState::destroyed) table.set_destroyed(sandbox.id, state);
  });
}

// For a sandbox that died, or that a crash interrupted: it was not stopped cleanly.
void Sandboxes::note_lost(const state_db::SandboxRow& sandbox, const std::string& reason) {
  state_db::SandboxTable table(context_.store);
  context_.store.transaction([&] {
    const auto current = table.get(sandbox.id);
    if (current.state == SandboxState::destroyed || current.state == SandboxState::stopped ||
        current.state == SandboxState::lost) {
      return;
    }
    if (!sandbox.standby) integrity_.set_recovered(current);
    table.set_lost(sandbox.id, current.state, reason);
  });
}

// A sandbox on another machine may have sent more than was applied.
void Sandboxes::finish_files(const state_db::SandboxRow& sandbox) {
  incoming_.finish(sandbox, [&] {
    const auto row = state_db::WorkspaceTable(context_.store).get(sandbox.workspace);
    return context_.live.at_rest(
        row.id, [&] { return chains_.mount_rest(row); }, context_.options.transfer_patience);
  });
}

bool Sandboxes::sandbox_died(base::WorkspaceId workspace, base::SandboxId sandbox) {
  return try_clear_dead(workspace, sandbox, "");
}

bool Sandboxes::sandbox_refused(base::WorkspaceId workspace, base::SandboxId sandbox,
                                const std::string& why) {
  return try_clear_dead(workspace, sandbox, why);
}

bool Sandboxes::try_clear_dead(base::WorkspaceId workspace, base::SandboxId sandbox,
                               const std::string& why) {
  try {
    return clear_dead(workspace, sandbox, why);
  } catch (const std::exception& error) {  // the reconciler retries it
    base::log(base::LogLevel::error, "sandbox.not_cleared",
              {{"ws", workspace}, {"sb", sandbox}, {"error", error.what()}});
  }
  return true;
}

bool Sandboxes::clear_dead(base::WorkspaceId workspace, base::SandboxId sandbox,
                           const std::string& refused) {
  const auto guard = lock_if_free(context_, workspace.str());
  if (!guard) return false;
  const auto row = state_db::SandboxTable(context_.store).get(sandbox);
  if (row.state != SandboxState::running && row.state != SandboxState::frozen)
    return true;  // a verb handled it
  std::string why = refused;
  if (why.empty()) {
    const Relinked relinked = relink(row);
    if (relinked != Relinked::lost) return relinked == Relinked::done;
    why = why_gone(row);
  }
  if (why.empty()) why = "its sandbox died";
  base::log(base::LogLevel::warning, "sandbox.died",
            {{"ws", workspace}, {"sb", sandbox}, {"why", why}});
  clear(row, why);
  return true;
}

}  // namespace moorage::workspace
