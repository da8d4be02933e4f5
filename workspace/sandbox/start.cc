#include "workspace/sandbox/start.h"

#include "backends/registry.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "layers/sandbox_mounts.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store.h"
#include "workspace/access/placement.h"

namespace moorage::workspace {
namespace {

constexpr const char* kObjectsTarget = "/.moorage/objects";

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

state_db::NewSandbox SandboxStart::plan(const state_db::WorkspaceRow& row) {
  const auto& limits = row.policy.limits;
  check_placement(context_, row, {row.backend, row.image, row.runtime});
  check_backend_accepts(context_, {row.backend, row.image, row.runtime},
                        {limits.memory_bytes, limits.cpus, limits.pids});
  const auto can = context_.backends.get(row.backend).capabilities();
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

LiveSandbox SandboxStart::begin(const state_db::WorkspaceRow& row,
                                const state_db::SandboxRow& sandbox,
                                const layers::ActiveMounts* mounts) {
  LiveSandbox running;
  running.sandbox = sandbox.id;
  running.workspace = row.id;
  running.owner = row.owner_uid;
  running.name = sandbox.name;
  running.backend = &context_.backends.get(sandbox.backend);
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
                 {objects.get(), kObjectsTarget}};
  const auto& limits = row.policy.limits;
  spec.limits = {limits.memory_bytes, limits.cpus, limits.pids};
  spec.sudo = context_.options.sudo && running.backend->capabilities().sudo;
  spec.labels = {{"workspace", row.id.str()}};
  spec.deadline = context_.options.start_deadline;
  base::make_directories(spec.directory);
  running.init = running.backend->start(spec).init;
  running.endpoint = running.backend->endpoint(sandbox.name);
  if (running.init.pid == 0) throw Error(Code::unavailable, "its sandbox ended immediately");
  return running;
}

LiveSandboxPtr SandboxStart::finish(const state_db::SandboxRow& sandbox, LiveSandbox begun,
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

void SandboxStart::take_up(const LiveSandboxPtr& running) {
  context_.live.set_running(running);
  watcher_.watch_sandbox(*running);
  base::log(base::LogLevel::info, "sandbox.started",
            {{"ws", running->workspace}, {"sb", running->sandbox}, {"pid", running->init.pid}});
}

}  // namespace moorage::workspace
