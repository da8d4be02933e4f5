// A store whose sandboxes are entries in memory, with the reconciler and the doctor over it.
#pragma once

#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "patience.h"
#include "state_db/tables/execs.h"
#include "state_db/tables/integrity.h"
#include "workspace/access/placement_fixture.h"
#include "workspace/context/new_workspace.h"
#include "workspace/recovery/doctor.h"
#include "workspace/recovery/reconcile.h"

namespace moorage::workspace {

const auto kLong = std::chrono::seconds(20) * tests::patience();

struct RecoveryFixture : PlacementFixture {
  Reconciler reconciler{context,     mirrors,   leases,     chains,
                        sealing,     sandboxes, start_stop, deletion,
                        lease_verbs, files,     watcher,    std::chrono::milliseconds(50)};
  Doctor doctor{context, mirrors, sealing, watcher, reconciler, replica};

  // Needs no repair.
  state_db::WorkspaceRow make_whole(const std::string& name, const std::string& backend) {
    const auto row = make_workspace(name, backend);
    state_db::IntegrityTable(store).set(row.id, state_db::IntegrityState::intact);
    state_db::IntegrityTable(store).set_seal(row.id, "sealed");
    return row;
  }
  // Has a sandbox whose init is gone, and a command that ran in it.
  state_db::ExecRow make_dead(const std::string& name, const std::string& backend) {
    state_db::NewSandbox sandbox;
    sandbox.workspace = make_whole(name, backend).id;
    sandbox.backend = backend;
    sandbox.image = "host";
    state_db::SandboxTable table_of_sandboxes(store);
    state_db::NewExec request;
    request.workspace = sandbox.workspace;
    request.sandbox = table_of_sandboxes.create(sandbox).id;
    table_of_sandboxes.set_running(request.sandbox, {});
    request.argv = {"true"};
    request.user = "user";
    state_db::ExecTable table(store);
    return table.get(table.create(request).id);
  }
  // Has a sandbox that lives as long as this test.
  state_db::SandboxRow make_running(const std::string& name, const std::string& backend) {
    state_db::NewSandbox sandbox;
    sandbox.workspace = make_whole(name, backend).id;
    sandbox.backend = backend;
    sandbox.image = "host";
    state_db::SandboxTable table_of_sandboxes(store);
    const auto row = table_of_sandboxes.create(sandbox);
    backends::SandboxSpec spec;
    spec.name = row.name;
    const auto status = registry.get(backend).start(spec);
    base::make_directories(directory.path() + "/sandboxes/" + row.id.str());
    table_of_sandboxes.set_running(row.id, {.init = status.init});
    return table_of_sandboxes.get(row.id);
  }
  state_db::SandboxState state(const state_db::ExecRow& exec) {
    return state_db::SandboxTable(store).get(exec.request.sandbox).state;
  }
  state_db::WorkspaceState state(base::WorkspaceId id) {
    return state_db::WorkspaceTable(store).get(id).state;
  }
  state_db::ExecRow now(const state_db::ExecRow& exec) {
    return state_db::ExecTable(store).get(exec.id);
  }
  template <typename Condition>
  bool comes(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + kLong;
    while (!condition() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return condition();
  }
};

}  // namespace moorage::workspace
