// A sandbox on another machine outlives its process 1 here, the keeper of its moorage-link: it gets
// a new one (sandboxes.h).
#include <fcntl.h>

#include "backends/registry.h"
#include "backends/remote/link_client.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/wire/journal_middle.h"
#include "base/wire/link_config.h"
#include "layers/sandbox_mounts.h"
#include "state_db/store.h"
#include "state_db/tables/execs.h"
#include "workspace/sandbox/sandboxes.h"

namespace moorage::workspace {
namespace {

using state_db::SandboxState;

constexpr std::chrono::milliseconds kKeepDeadline{10'000};

// Local trouble, which may pass; everything else ends the sandbox.
bool may_pass(const Error& error) {
  return error.code() == Code::unavailable || error.code() == Code::resource_exhausted ||
         error.code() == Code::conflict || error.code() == Code::deadline_exceeded ||
         error.code() == Code::unknown_outcome;
}

}  // namespace

std::string Sandboxes::why_gone(const state_db::SandboxRow& sandbox) const {
  const std::string directory = context_.options.sandbox_directory(sandbox.id.str());
  const auto reason =
      base::read_file_if_exists(directory + "/" + base::kLinkGone, base::kMaxLinkGoneBytes);
  return reason ? "its machine is gone: " + *reason : std::string();
}

bool Sandboxes::outlives_keeper(const state_db::SandboxRow& sandbox) const {
  if (sandbox.state != SandboxState::running && sandbox.state != SandboxState::frozen) return false;
  // Of a copy of the store: the commands' output and the files that came since are not in it.
  if (sandbox.boot_id == state_db::kBootOfCopy) return false;
  auto* backend = context_.backends.find(sandbox.backend);
  const std::string directory = context_.options.sandbox_directory(sandbox.id.str());
  return backend && backend->known_capabilities().remote &&
         base::path_exists(directory + "/" + base::kLinkBegun) && why_gone(sandbox).empty();
}

// The journals of commands that may run there.
void Sandboxes::hand_over_journals(const LiveSandbox& begun) {
  for (const auto& exec : state_db::ExecTable(context_.store).running(begun.sandbox)) {
    const std::string path = journal_path(context_.options, begun.workspace, exec.id);
    if (!base::path_exists(path)) continue;
    const base::Fd journal = base::open_file(path, O_WRONLY | O_APPEND);
    backends::LinkClient(begun.endpoint)
        .keep(exec.id.str(), journal.get(), base::journal_room(context_.options.output_limit_bytes),
              kKeepDeadline);
  }
}

LiveSandboxPtr Sandboxes::new_keeper(const state_db::WorkspaceRow& row,
                                     const state_db::SandboxRow& sandbox) {
  // Of a daemon that was killed here. It has the workspace mounted, so there must be no second one.
  const auto status = context_.backends.get(sandbox.backend).inspect(sandbox.name);
  if (status.state == backends::SandboxState::running) return adopt(row, sandbox, status.init);
  context_.live.wait_unmounted(row.id, context_.options.transfer_patience);
  const layers::Chain layers = chains_.chain(row, Chains::Compare::sometimes);
  const layers::ActiveMounts mounts = chains_.mount(layers, sandbox.first_host_id);
  return adopt(row, sandbox, begin(row, sandbox, layers.base_tree, &mounts).init);
}

Sandboxes::Relinked Sandboxes::relink(const state_db::SandboxRow& sandbox) {
  if (!outlives_keeper(sandbox)) return Relinked::lost;
  const auto row = state_db::WorkspaceTable(context_.store).get(sandbox.workspace);
  watcher_.forget_sandbox(sandbox.id);
  networks_.forget(sandbox.id);
  context_.live.clear_running(sandbox.id);
  try {
    const LiveSandboxPtr running = new_keeper(row, sandbox);
    hand_over_journals(*running);
    const layers::ActiveMounts& mounts = running->mounted->mounts;
    context_.store.transaction([&] {
      if (sandbox.state == SandboxState::frozen)
        context_.store.move(sandbox.id, SandboxState::frozen, SandboxState::running,
                            "its link was replaced");
      state_db::SandboxTable(context_.store)
          .set_init(sandbox.id, {running->init, mounts.tree_device, mounts.home_device});
    });
    context_.live.set_running(running);
    watch(*running);
  } catch (const Error& error) {
    base::log(base::LogLevel::warning, "sandbox.not_relinked",
              {{"ws", row.id}, {"sb", sandbox.id}, {"error", error.message()}});
    return may_pass(error) ? Relinked::later : Relinked::lost;
  }
  base::log(base::LogLevel::info, "sandbox.relinked", {{"ws", row.id}, {"sb", sandbox.id}});
  return Relinked::done;
}

}  // namespace moorage::workspace
