#include "workspace/sandbox/given_up.h"

#include <algorithm>

#include "backends/registry.h"
#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/wire/link_config.h"
#include "state_db/store.h"
#include "state_db/tables/integrity.h"
#include "workspace/chain/initial_files.h"
#include "workspace/chain/layer_life.h"
#include "workspace/remote/incoming_directory.h"

namespace moorage::workspace {
namespace {

using state_db::SandboxState;
using state_db::SnapshotState;
using state_db::WorkspaceState;

MOORAGE_CRASH_POINT(after_intent, "give_up.after_intent");
MOORAGE_CRASH_POINT(after_layers, "give_up.after_layers");
MOORAGE_CRASH_POINT(after_outcome, "give_up.after_outcome");

constexpr size_t kMaxTroubleBytes = 2000;
constexpr size_t kMaxNumberBytes = 32;

state_db::NewSnapshot base_of(base::WorkspaceId workspace, base::SandboxId sandbox) {
  state_db::NewSnapshot wanted;
  wanted.workspace = workspace;
  wanted.cause = state_db::SnapshotCause::fork;
  wanted.idempotency_key = given_up_key(sandbox);
  return wanted;
}

bool is_gone(const std::optional<state_db::WorkspaceRow>& row) {
  return !row || row->state == WorkspaceState::deleting || row->state == WorkspaceState::deleted ||
         row->state == WorkspaceState::failed;
}

std::optional<state_db::SandboxRow> sandbox_of(Context& context, const std::string& name) {
  const std::string prefix = context.backends.prefix();
  if (!name.starts_with(prefix)) return std::nullopt;
  const auto id = base::SandboxId::parse(name.substr(prefix.size()));
  return id ? state_db::SandboxTable(context.store).find(*id) : std::nullopt;
}

// Its own name keeps it from being dropped automatically.
std::string free_snapshot_name(Context& context, base::WorkspaceId workspace,
                               base::SandboxId sandbox) {
  const std::string wish = "given-up-sb-" + std::to_string(sandbox.value);
  std::string name = wish;
  state_db::SnapshotTable table(context.store);
  for (int n = 2; table.find_by_name(workspace, name); ++n) name = wish + "-" + std::to_string(n);
  return name;
}

std::string read_text(const std::string& path) {
  return base::read_file_if_exists(path, kMaxTroubleBytes).value_or("");
}

}  // namespace

std::string salvage_directory(const Options& options) { return options.store + "/salvage"; }

std::string salvage_directory(const Options& options, base::SandboxId sandbox) {
  return salvage_directory(options) + "/" + sandbox.str();
}

std::string given_up_key(base::SandboxId sandbox) { return "given up\n" + sandbox.str(); }

std::string LeftMachine::way_to_give_up() const {
  return "moorage drop " + workspace.name + " " + (base.name.empty() ? base.id.str() : base.name);
}

std::optional<LeftMachine> left_machine(Context& context, const std::string& backend,
                                        const backends::MachineNote& note) {
  const auto sandbox = sandbox_of(context, note.sandbox);
  if (!sandbox || sandbox->state != SandboxState::destroyed) return std::nullopt;
  const auto row = state_db::WorkspaceTable(context.store).find(sandbox->workspace);
  if (is_gone(row)) return std::nullopt;
  const auto base = state_db::SnapshotTable(context.store).find_made(base_of(row->id, sandbox->id));
  if (!base || base->state != SnapshotState::kept) return std::nullopt;
  LeftMachine left{.sandbox = *sandbox, .workspace = *row, .base = *base};
  left.backend = backend;
  left.place = note.place;
  const std::string directory = salvage_directory(context.options, sandbox->id);
  left.trouble = read_text(directory + kSalvageTrouble);
  left.held = base::path_exists(directory + kSalvageHeld);
  return left;
}

std::vector<LeftMachine> left_machines(Context& context, base::WorkspaceId workspace) {
  std::vector<LeftMachine> found;
  for (const std::string& name : context.backends.names()) {
    auto* backend = context.backends.find(name);
    auto* machines = backend ? backend->machines() : nullptr;
    if (!machines) continue;
    for (const auto& note : machines->notes()) {
      const auto sandbox = sandbox_of(context, note.sandbox);
      if (!sandbox || sandbox->workspace != workspace) continue;
      if (auto left = left_machine(context, name, note)) found.push_back(*std::move(left));
    }
  }
  return found;
}

std::string left_notice(Context& context, base::WorkspaceId workspace) {
  std::string text;
  for (const LeftMachine& left : left_machines(context, workspace)) {
    if (!text.empty()) text += "; ";
    text += left.sandbox.id.str() + " on " + left.place + " may have changes that did not arrive";
    text += left.held ? " and cannot be taken over"
                      : "; they come as " + left.workspace.name + "-recovered once it answers";
    if (!left.trouble.empty()) text += ": " + left.trouble;
  }
  return text;
}

bool GivenUp::has_more(const state_db::SandboxRow& sandbox) const {
  auto* backend = context_.backends.find(sandbox.backend);
  auto* machines = backend ? backend->machines() : nullptr;
  const bool ran = sandbox.started_wall_ms != 0 && !sandbox.standby;
  if (!machines || !ran || sandbox.boot_id == state_db::kBootOfCopy) return false;
  // A stop fetched everything, or kept the base.
  const auto wanted = base_of(sandbox.workspace, sandbox.id);
  if (sandbox.state == SandboxState::stopped)
    return state_db::SnapshotTable(context_.store).find_made(wanted).has_value();
  const auto notes = machines->notes();
  const bool noted = std::any_of(notes.begin(), notes.end(), [&](const auto& note) {
    return note.sandbox == sandbox.name && !note.kept;
  });
  if (!noted || is_gone(state_db::WorkspaceTable(context_.store).find(sandbox.workspace)))
    return false;
  // Of a machine that broke the rules nothing more is believed.
  const IncomingDirectory incoming(context_.options.sandbox_directory(sandbox.id.str()));
  return !incoming.refused();
}

bool GivenUp::keep_base(const state_db::SandboxRow& sandbox) {
  if (!has_more(sandbox)) return false;
  const std::string last = std::string("/") + base::kIncoming + "/last";
  const std::string from = context_.options.sandbox_directory(sandbox.id.str());
  const std::string to = salvage_directory(context_.options, sandbox.id) + "/here";
  if (const auto number = base::read_file_if_exists(from + last, kMaxNumberBytes)) {
    base::make_directories(to + "/" + base::kIncoming);
    base::write_file_durable(to + last, *number);
  }
  const auto row = chains_.settled(state_db::WorkspaceTable(context_.store).get(sandbox.workspace));
  if (!state_db::SnapshotTable(context_.store).find_made(base_of(row.id, sandbox.id)))
    take_base(row, sandbox.id);
  return true;
}

// Nothing runs, so its layer becomes the snapshot's. Chains::settled finishes an interrupted one.
void GivenUp::take_base(const state_db::WorkspaceRow& row, base::SandboxId sandbox) {
  context_.live.wait_unmounted(row.id, context_.options.transfer_patience);
  state_db::SnapshotTable table(context_.store);
  auto wanted = base_of(row.id, sandbox);
  wanted.name = free_snapshot_name(context_, row.id, sandbox);
  const auto taking = table.begin(wanted);
  after_intent.pass();
  try {
    sync_initial_files(context_, row);
    make_layers(context_, {taking.next_layer});
    after_layers.pass();
    context_.store.transaction([&] {
      table.finish(taking.id, 0);
      state_db::IntegrityTable(context_.store).clear_seal(row.id);
      context_.store.add_event("sandbox.given_up", {.workspace = row.id, .sandbox = sandbox},
                               "its machine may have changes that did not arrive; they are "
                               "relative to snapshot " +
                                   wanted.name);
    });
  } catch (Error& error) {
    table.undo(taking.id, error.message());
    collect_layers(context_);
    throw error.add_context("cannot keep the state of " + row.name);
  }
  after_outcome.pass();
  base::log(base::LogLevel::warning, "sandbox.given_up",
            {{"ws", row.id}, {"sb", sandbox}, {"sn", taking.id}});
}

}  // namespace moorage::workspace
