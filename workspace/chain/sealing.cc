#include "workspace/chain/sealing.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/store.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/snapshots.h"
#include "workspace/chain/initial_files.h"

namespace moorage::workspace {
namespace {

using state_db::WorkspaceState;

constexpr size_t kSealers = 2;  // one user gets at most one
constexpr std::chrono::milliseconds kUnmountPatience{2'000};

}  // namespace

Sealing::Sealing(Context& context, Repositories& repositories, IntegrityCheck& integrity)
    : context_(context),
      repositories_(repositories),
      integrity_(integrity),
      flights_(
          kSealers, [this](int64_t key) { seal_at_rest({key}); }, base::SingleFlight::Fair{}) {
  context_.live.on_rest([this](base::WorkspaceId id) { request(id); });
}

Sealing::~Sealing() { context_.live.on_rest({}); }

void Sealing::request(base::WorkspaceId id) {
  try {
    const auto row = state_db::WorkspaceTable(context_.store).find(id);
    if (row) flights_.request(id.value, row->owner_uid);
  } catch (const Error& error) {  // its next stop or the reconciler (seal_unsealed) retries
    base::log(base::LogLevel::warning, "workspace.not_sealed",
              {{"ws", id}, {"error", error.message()}});
  }
}

// A transfer that holds the mounts continues after the stop; the seal is taken when it ends.
IntegrityCheck::Taken Sealing::at_stop(const state_db::WorkspaceRow& row) {
  try {
    context_.live.wait_unmounted(row.id, kUnmountPatience);
  } catch (const Error&) {
    return {};
  }
  return integrity_.take(row.id, row.layer);
}

// Its last mount was closed, or was found closed. A verb that holds the lock seals it itself or
// leaves it running.
void Sealing::seal_at_rest(base::WorkspaceId id) {
  try {
    const auto guard = context_.locks.lock(id.str(), "seal", std::chrono::milliseconds(0));
    const auto row = state_db::WorkspaceTable(context_.store).find(id);
    if (!row || row->state != WorkspaceState::ready || context_.live.mounted(id)) return;
    const auto known = state_db::IntegrityTable(context_.store).get(id);
    using state_db::IntegrityState;
    // Files may have been written to a workspace that never ran.
    const bool is_new = known.state == IntegrityState::unknown;
    const bool seals = known.seal.empty() && (is_new || known.state == IntegrityState::intact);
    if (!seals || state_db::SandboxTable(context_.store).live(id)) return;
    const auto taken = integrity_.take(id, row->layer);
    if (!taken.seal) return;
    // Sync first: otherwise a power cut after the seal would look like a change from outside.
    base::sync_file_system(context_.storage.layer_path(row->layer));
    context_.store.transaction([&] {
      state_db::IntegrityTable table(context_.store);
      if (is_new) table.set(id, IntegrityState::intact);
      table.set_seal(id, taken.seal->hash);
    });
  } catch (const Error& error) {
    if (error.code() == Code::conflict) return;  // busy: its verb or the reconciler does it
    base::log(base::LogLevel::warning, "workspace.not_sealed",
              {{"ws", id}, {"error", error.what()}});
  }
}

void Sealing::seal_unsealed() {
  for (const auto id : state_db::IntegrityTable(context_.store).unsealed_at_rest()) request(id);
}

void Sealing::accept(const state_db::WorkspaceRow& row) {
  const auto guard = context_.locks.lock(row.id.str(), "accept");
  const bool rests =
      !context_.live.mounted(row.id) && !state_db::SandboxTable(context_.store).live(row.id);
  const auto taken = rests ? integrity_.take(row.id, row.layer) : IntegrityCheck::Taken{};
  base::sync_file_system(context_.options.store);
  context_.store.transaction([&] { integrity_.keep(row, taken); });
}

void Sealing::sync_active() {
  state_db::SnapshotTable snapshots(context_.store);
  const auto unsynced = snapshots.not_durable();
  if (!context_.live.all().empty() || !unsynced.empty())
    sync_all_initial_files(context_, [&] { base::sync_file_system(context_.options.store); });
  if (!unsynced.empty()) {
    context_.store.transaction([&] {
      for (const auto& row : unsynced) snapshots.set_durable(row.id);
    });
  }
  repositories_.sync_base_trees();
}

}  // namespace moorage::workspace
