#include "workspace/recovery/salvage.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "backends/registry.h"
#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/store.h"
#include "state_db/tables/layers.h"
#include "workspace/chain/layer_life.h"
#include "workspace/context/free_space.h"
#include "workspace/context/try_step.h"
#include "workspace/remote/incoming_directory.h"
#include "workspace/remote/write_pack.h"

namespace moorage::workspace {
namespace {

using std::chrono::milliseconds;

MOORAGE_CRASH_POINT(before_fetch, "salvage.before_fetch");
MOORAGE_CRASH_POINT(after_fetch, "salvage.after_fetch");
MOORAGE_CRASH_POINT(after_intent, "salvage.after_intent");
MOORAGE_CRASH_POINT(after_files, "salvage.after_files");
MOORAGE_CRASH_POINT(after_outcome, "salvage.after_outcome");
MOORAGE_CRASH_POINT(before_finish, "salvage.before_finish");

constexpr size_t kMaxStem = 48;  // of the 63 bytes of a name
constexpr milliseconds kLockPatience{1'000};
constexpr size_t kMaxTroubleBytes = 1000;
constexpr const char* kNotThere = "not there";

// Trying again without a person's help changes nothing.
bool needs_person(const Error& error) {
  return error.code() != Code::conflict && error.code() != Code::unavailable &&
         error.code() != Code::deadline_exceeded && error.code() != Code::unknown_outcome;
}

uint64_t bytes_of(const std::string& directory) {
  base::UsageLimits limits;
  return base::tree_usage(directory, limits).bytes;
}

std::string place_text(const LeftMachine& left) {
  return left.sandbox.id.str() + (left.place == left.backend ? " at " : " on ") + left.place;
}

}  // namespace

void Salvage::fetch(const std::string& backend, const backends::MachineNote& note,
                    const Rules& rules) {
  const auto left = left_machine(context_, backend, note);
  if (!left || is_done(*left)) return;
  const std::string directory = salvage_directory(context_.options, left->sandbox.id);
  if (left->held && !rules.again) {
    throw Error(Code::resource_exhausted, left->trouble,
                "moorage doctor --fix tries again; " + left->way_to_give_up() + " gives it up");
  }
  before_fetch.pass();
  try {
    if (!base::path_exists(directory + kSalvageFetched)) {
      const bool found =
          context_.backends.get(backend).machines()->salvage_there(note, directory, rules.deadline);
      base::make_directories(directory);
      base::write_file_durable(directory + kSalvageFetched, found ? "" : kNotThere);
    }
    after_fetch.pass();
    take_over(*left, directory);
  } catch (const Error& error) {
    note_trouble(*left, directory, error);
    throw;
  }
}

void Salvage::take_over(const LeftMachine& left, const std::string& directory) {
  if (IncomingDirectory(directory).packs().empty()) return;
  base::KeyedMutex::Guard at_work;
  const auto made = begin_fork(left, at_work);
  after_intent.pass();
  state_db::WorkspaceTable table(context_.store);
  const auto fork = table.get(made.id);
  try {
    make_layers(context_, {fork.layer});
    write_files(fork, directory);
    after_files.pass();
    record(left, fork);
  } catch (Error& error) {
    abandon(context_, table.get(fork.id), error.message());
    // Each try leaves a failed workspace behind.
    if (needs_person(error)) base::write_file_durable(directory + kSalvageHeld, "");
    throw error.add_context("changes of " + place_text(left) + " cannot be taken over");
  }
  after_outcome.pass();
  base::log(base::LogLevel::info, "workspace.recovered",
            {{"ws", left.workspace.id}, {"sb", left.sandbox.id}, {"fork", fork.id}});
}

// Whether there is a fork of it. A person may have deleted it since.
bool Salvage::is_done(const LeftMachine& left) {
  state_db::WorkspaceTable table(context_.store);
  const auto made = table.find_made(planned_fork(left));
  if (!made) return false;
  if (table.get(made->id).state == state_db::WorkspaceState::creating)
    throw Error(Code::conflict, "an interrupted fork of it is being removed", "try again");
  return true;
}

state_db::NewWorkspace Salvage::planned_fork(const LeftMachine& left) {
  const auto& row = left.workspace;
  state_db::NewWorkspace fork;
  fork.owner_uid = row.owner_uid;
  fork.team_gid = row.team_gid;
  fork.repository = row.repository;
  fork.base_ref = row.base_ref;
  fork.base_commit = row.base_commit;
  fork.head_commit = row.head_commit;
  fork.raw_commit = row.raw_commit;
  fork.branch = row.branch;
  fork.backend = row.backend;
  fork.image = row.image;
  fork.runtime = row.runtime;
  fork.policy = row.policy;
  fork.policy.pinned = false;
  fork.labels = row.labels;
  fork.forked_from = left.base.id;
  fork.attempt = fork.attempts = 1;
  fork.idempotency_key = given_up_key(left.sandbox.id);
  return fork;
}

// The origin's lock is needed only until the fork's rows keep the base's layer.
state_db::WorkspaceTable::Created Salvage::begin_fork(const LeftMachine& left,
                                                      base::KeyedMutex::Guard& at_work) {
  const std::string directory = salvage_directory(context_.options, left.sandbox.id);
  require_room(context_.options, kTakeOver, bytes_of(directory));
  const auto origin = context_.locks.lock(left.workspace.id.str(), "recovering", kLockPatience);
  const auto base = state_db::SnapshotTable(context_.store).get(left.base.id);
  if (base.state != state_db::SnapshotState::kept)
    throw Error(Code::conflict, base.id.str() + " was dropped", "try again");
  if (state_db::LayerTable(context_.store).get(base.layer).cold) {
    throw Error(Code::conflict, left.workspace.name + " is archived",
                "moorage unarchive " + left.workspace.name);
  }
  base::sync_file_system(context_.options.store);  // nothing may be based on less
  auto fork = planned_fork(left);
  return context_.store.transaction([&] {
    state_db::SnapshotTable(context_.store).set_durable(base.id);
    state_db::WorkspaceTable table(context_.store);
    fork.name =
        table.free_name(fork.owner_uid, left.workspace.name.substr(0, kMaxStem) + "-recovered");
    const auto made = table.create(fork);
    if (made.existed) throw Error(Code::conflict, "another try is going on", "try again");
    at_work = hold_new(context_, made.id, "recovering");
    return made;
  });
}

void Salvage::write_files(const state_db::WorkspaceRow& fork, const std::string& directory) {
  const IncomingDirectory incoming(directory);
  {
    const auto mounted = context_.live.at_rest(
        fork.id, [&] { return chains_.mount_rest(fork); }, context_.options.transfer_patience);
    for (const uint64_t number : incoming.packs())
      write_pack(context_, fork, *mounted, incoming.open(number), [] {});
  }
  base::sync_file_system(context_.storage.layer_path(fork.layer));
}

void Salvage::record(const LeftMachine& left, const state_db::WorkspaceRow& fork) {
  const std::string what = "the changes of " + place_text(left) + " that had not arrived";
  context_.store.transaction([&] {
    state_db::WorkspaceTable(context_.store).set_ready(fork.id);
    context_.store.add_event("workspace.recovered", {.workspace = fork.id},
                             "has " + what + " when " + left.workspace.name + " went on");
    context_.store.add_event("sandbox.recovered",
                             {.workspace = left.workspace.id, .sandbox = left.sandbox.id},
                             what + " are in " + fork.name);
  });
}

void Salvage::note_trouble(const LeftMachine& left, const std::string& directory,
                           const Error& error) {
  const std::string text = error.message().substr(0, kMaxTroubleBytes);
  base::make_directories(directory);
  base::write_file(directory + kSalvageTrouble, text);
  if (text == left.trouble || !base::path_exists(directory + kSalvageHeld)) return;
  context_.store.add_event("sandbox.not_recovered",
                           {.workspace = left.workspace.id, .sandbox = left.sandbox.id}, text);
}

void Salvage::finish(const std::string& sandbox_name) {
  before_finish.pass();
  const std::string prefix = context_.backends.prefix();
  if (!sandbox_name.starts_with(prefix)) return;
  if (const auto id = base::SandboxId::parse(sandbox_name.substr(prefix.size()))) finish(*id);
}

void Salvage::finish(base::SandboxId sandbox) {
  const auto row = state_db::SandboxTable(context_.store).find(sandbox);
  const backends::MachineNote note{.sandbox = row ? row->name : ""};
  const auto left = row ? left_machine(context_, row->backend, note) : std::nullopt;
  if (left && !is_done(*left)) {
    const auto guard = context_.locks.lock(left->workspace.id.str(), "recovering", kLockPatience);
    const std::string fetched = salvage_directory(context_.options, sandbox) + kSalvageFetched;
    const bool found = base::read_file_if_exists(fetched, kMaxTroubleBytes) != kNotThere;
    const std::string why = found ? "all changes of its machine had arrived"
                                  : "its machine does not have the sandbox any more";
    context_.store.transaction([&] {
      state_db::SnapshotTable(context_.store).drop(left->base.id, why);
      context_.store.add_event("sandbox.not_forked",
                               {.workspace = left->workspace.id, .sandbox = sandbox}, why);
    });
  }
  base::remove_tree(salvage_directory(context_.options, sandbox));
}

void Salvage::finish_all() {
  const std::unique_lock alone(finishing_, std::try_to_lock);
  if (!alone) return;
  const std::string directory = salvage_directory(context_.options);
  const auto names = base::list_directory_if_exists(directory);
  std::set<std::string> noted;
  for (const auto& note : backends::list_notes(context_.options.store + "/remote"))
    noted.insert(note.sandbox);
  for (const std::string& name : names) {
    const auto id = base::SandboxId::parse(name);
    const auto row = id ? state_db::SandboxTable(context_.store).find(*id) : std::nullopt;
    if (!row || row->state != state_db::SandboxState::destroyed || noted.contains(row->name))
      continue;
    try_step("machine.salvage", name, [&] {
      const auto left = left_machine(context_, row->backend, {.sandbox = row->name});
      // A person removed the note after its changes were fetched.
      if (left && !left->held && !is_done(*left)) take_over(*left, directory + "/" + name);
      finish(*id);
    });
  }
}

}  // namespace moorage::workspace
