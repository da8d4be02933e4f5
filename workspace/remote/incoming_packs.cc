#include "workspace/remote/incoming_packs.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/store.h"
#include "state_db/tables/workspaces.h"
#include "workspace/remote/write_pack.h"

namespace moorage::workspace {
namespace {

using state_db::WorkspaceState;
using std::chrono::milliseconds;
using std::chrono::seconds;

MOORAGE_CRASH_POINT(before_apply, "incoming.before_apply");
MOORAGE_CRASH_POINT(after_apply, "incoming.after_apply");

constexpr size_t kThreads = 4;
constexpr size_t kQueue = 100'000;
// A verb of the workspace may hold the applier for long; the next tick tries again.
constexpr milliseconds kJobPatience{1'000};
constexpr seconds kLongestPause{60};
// syncfs delays other writers of the store, and the packs wait safely on the disk.
constexpr seconds kBetweenSyncs{5};
// A pack that fails for a reason other than room fails again.
constexpr unsigned kMostFailures = 12;  // about eight minutes
constexpr size_t kMaxReasonBytes = 1000;
constexpr const char* kApplying = "taking over changes from the other machine";

Error refusal(const std::string& why) { return {Code::corrupted, why}; }

bool may_pass(const Error& error) {
  return error.code() == Code::resource_exhausted || error.code() == Code::unavailable ||
         error.code() == Code::deadline_exceeded;
}

}  // namespace

IncomingPacks::IncomingPacks(Context& context)
    : context_(context), pool_(std::make_unique<base::FairPool>(kThreads, kQueue)) {}

IncomingPacks::~IncomingPacks() { stop(); }

void IncomingPacks::stop() {
  stopping_ = true;
  std::unique_ptr<base::FairPool> ending;
  {
    const std::lock_guard lock(mutex_);
    ending = std::move(pool_);
    for (auto& [sandbox, state] : states_) state.waiters.clear();
  }
  ending.reset();  // waits for its work, which stops soon
}

IncomingDirectory IncomingPacks::directory(base::SandboxId sandbox) const {
  return IncomingDirectory(context_.options.sandbox_directory(sandbox.str()));
}

size_t IncomingPacks::waiting(base::SandboxId sandbox) const {
  return directory(sandbox).packs().size();
}

size_t IncomingPacks::waiting_ends(base::SandboxId sandbox) {
  const std::lock_guard lock(mutex_);
  const auto found = states_.find(sandbox);
  return found == states_.end() ? 0 : found->second.waiters.size();
}

std::string IncomingPacks::trouble(base::SandboxId sandbox) {
  if (const auto why = directory(sandbox).refused()) return *why;
  const std::lock_guard lock(mutex_);
  const auto found = states_.find(sandbox);
  return found == states_.end() ? "" : found->second.trouble;
}

base::KeyedMutex::Guard IncomingPacks::pause(base::WorkspaceId workspace,
                                             const std::string& operation, milliseconds patience) {
  return appliers_.lock(workspace.str(), operation, patience);
}

// ---- when

void IncomingPacks::apply(const LiveSandbox& running) {
  const IncomingDirectory incoming = directory(running.sandbox);
  if (incoming.packs().empty() && !incoming.refused()) return;
  const Subject subject{running.sandbox, running.workspace};
  try {
    const auto guard = appliers_.lock(running.workspace.str(), kApplying, kPatience);
    apply_all(subject, *running.mounted);
  } catch (const Error& error) {
    note_failure(subject, error);
    wake_waiters(running.sandbox);
    throw;
  }
  note_success(running.sandbox);
  wake_waiters(running.sandbox);
}

void IncomingPacks::when_applied(const LiveSandbox& running, Then then) {
  const IncomingDirectory incoming = directory(running.sandbox);
  if (const auto why = incoming.refused()) {
    const Error error = refusal(*why);
    return then(&error);
  }
  const auto packs = incoming.packs();
  if (packs.empty()) return then(nullptr);
  {
    const std::lock_guard lock(mutex_);
    if (!pool_) return;
    states_[running.sandbox].waiters.push_back({packs.back(), std::move(then)});
  }
  request(running);
}

void IncomingPacks::request(const LiveSandbox& running) {
  LiveSandbox known = running;
  known.mounted.reset();  // queued work must not keep mounts
  const std::lock_guard lock(mutex_);
  State& state = states_[running.sandbox];
  if (!pool_ || state.queued) return;
  try {
    pool_->submit({.user = running.owner, .subject = running.workspace.str()},
                  [this, known] { work(known); });
    state.queued = true;
  } catch (const Error& error) {  // no thread: the next tick tries again
    base::log(base::LogLevel::warning, "remote.not_queued",
              {{"sb", running.sandbox}, {"error", error.message()}});
  }
}

bool IncomingPacks::is_due(base::SandboxId sandbox) {
  const auto now = Clock::now();
  const IncomingDirectory incoming = directory(sandbox);
  const bool wanted = !incoming.packs().empty() || incoming.refused();
  const bool unsynced = !wanted && !incoming.applied().empty();
  const std::lock_guard lock(mutex_);
  const State& state = states_[sandbox];
  return (wanted && now >= state.next_try) || (unsynced && now >= state.next_sync);
}

void IncomingPacks::tick() {
  for (const LiveSandbox& running : context_.live.all()) {
    if (!running.remote) continue;
    try {
      if (is_due(running.sandbox)) request(running);
    } catch (const Error& error) {
      base::log(base::LogLevel::warning, "remote.not_checked",
                {{"sb", running.sandbox}, {"error", error.message()}});
    }
  }
}

// On the pool. A sandbox that is not running any more is finish()'s.
void IncomingPacks::work(const LiveSandbox& known) {
  {
    const std::lock_guard lock(mutex_);
    states_[known.sandbox].queued = false;
  }
  std::optional<std::string> refused;
  try {
    const auto running = context_.live.running(known.workspace);
    if (!running || running->sandbox != known.sandbox) return;
    refused = try_all(*running);
  } catch (const std::exception& error) {
    base::log(base::LogLevel::warning, "remote.not_applied",
              {{"ws", known.workspace}, {"sb", known.sandbox}, {"error", error.what()}});
  }
  if (!refused) return;
  // Without the mounts and the guard: whoever ends the sandbox waits for both.
  listeners_.each([&](RefusalListener& listener) {
    listener.sandbox_refused(known.workspace, known.sandbox, *refused);
  });
}

// Returns why the machine's changes are refused.
std::optional<std::string> IncomingPacks::try_all(const LiveSandbox& running) {
  const Subject subject{running.sandbox, running.workspace};
  base::KeyedMutex::Guard guard;
  try {
    guard = appliers_.lock(running.workspace.str(), kApplying, kJobPatience);
  } catch (const Error& error) {
    if (error.code() != Code::conflict) throw;
    return std::nullopt;
  }
  try {
    apply_all(subject, *running.mounted);
    note_success(running.sandbox);
  } catch (const Error& error) {
    note_failure(subject, error);
  }
  wake_waiters(running.sandbox);
  sync_if_due(running.sandbox, std::move(guard));
  return directory(running.sandbox).refused();
}

void IncomingPacks::sync_if_due(base::SandboxId sandbox, base::KeyedMutex::Guard guard) {
  const IncomingDirectory incoming = directory(sandbox);
  const auto applied = incoming.applied();
  {
    const std::lock_guard lock(mutex_);
    State& state = states_[sandbox];
    if (applied.empty() || Clock::now() < state.next_sync) return;
    state.next_sync = Clock::now() + kBetweenSyncs;
  }
  guard.unlock();  // later packs need not wait for the disk
  base::sync_file_system(context_.options.store);
  incoming.remove(applied);
}

void IncomingPacks::note_success(base::SandboxId sandbox) {
  const std::lock_guard lock(mutex_);
  State& state = states_[sandbox];
  state.failures = 0;
  state.trouble.clear();
  state.next_try = {};
}

void IncomingPacks::note_failure(const Subject& subject, const Error& error) {
  bool is_new = false;
  bool is_hopeless = false;
  {
    const std::lock_guard lock(mutex_);
    State& state = states_[subject.sandbox];
    is_new = state.trouble != error.message();
    state.trouble = error.message();
    const seconds pause(1LL << std::min(state.failures, 10U));
    state.next_try = Clock::now() + std::min(pause, kLongestPause);
    is_hopeless = ++state.failures > kMostFailures && !may_pass(error);
  }
  if (is_new) {
    base::log(base::LogLevel::warning, "remote.not_applied",
              {{"ws", subject.workspace}, {"sb", subject.sandbox}, {"error", error.message()}});
    if (error.code() != Code::corrupted)
      context_.store.add_event("sandbox.files_wait",
                               {.workspace = subject.workspace, .sandbox = subject.sandbox},
                               error.message());
  }
  if (!is_hopeless || directory(subject.sandbox).refused()) return;
  const auto packs = directory(subject.sandbox).packs();
  if (!packs.empty()) refuse(subject, packs.front(), error.message());
}

void IncomingPacks::wake_waiters(base::SandboxId sandbox) {
  const IncomingDirectory incoming = directory(sandbox);
  const auto refused = incoming.refused();
  const auto packs = incoming.packs();
  std::vector<Waiter> ready;
  {
    const std::lock_guard lock(mutex_);
    const auto found = states_.find(sandbox);
    if (found == states_.end()) return;
    std::vector<Waiter> rest;
    for (Waiter& waiter : found->second.waiters) {
      const bool done = refused || packs.empty() || packs.front() > waiter.last;
      (done ? ready : rest).push_back(std::move(waiter));
    }
    found->second.waiters = std::move(rest);
  }
  const Error error = refusal(refused.value_or("refused"));
  for (const Waiter& waiter : ready) waiter.then(refused ? &error : nullptr);
}

// ---- what

// Caller holds the workspace's applier.
void IncomingPacks::apply_all(const Subject& subject, const SharedMounts& mounted) {
  const IncomingDirectory incoming = directory(subject.sandbox);
  if (const auto why = incoming.refused()) throw refusal(*why);
  for (const uint64_t number : incoming.packs()) apply_one(subject, mounted, number);
}

void IncomingPacks::apply_one(const Subject& subject, const SharedMounts& mounted,
                              uint64_t number) {
  before_apply.pass();
  try {
    write_files(subject, mounted, number);
  } catch (Error& error) {
    if (error.code() != Code::corrupted) throw error.add_context(kTakeOver);
    refuse(subject, number, error.message());
    throw refusal(directory(subject.sandbox).refused().value_or(error.message()));
  }
  directory(subject.sandbox).set_applied(number);
  after_apply.pass();
}

void IncomingPacks::write_files(const Subject& subject, const SharedMounts& mounted,
                                uint64_t number) {
  const auto row = state_db::WorkspaceTable(context_.store).get(subject.workspace);
  write_pack(context_, row, mounted, directory(subject.sandbox).open(number), [this] {
    if (stopping_) throw Error(Code::unavailable, "the daemon is stopping");
  });
}

void IncomingPacks::refuse(const Subject& subject, uint64_t number, const std::string& message) {
  const std::string why =
      ("the other machine sent changes that are refused: " + message).substr(0, kMaxReasonBytes);
  const IncomingDirectory incoming = directory(subject.sandbox);
  incoming.set_refused(why);
  const std::string name = subject.sandbox.str() + "-" + std::to_string(number) + ".pack";
  const bool kept = incoming.keep(
      number, context_.options.store + "/workspaces/" + subject.workspace.str() + "/refused", name);
  context_.store.add_event("sandbox.files_refused",
                           {.workspace = subject.workspace, .sandbox = subject.sandbox},
                           why + (kept ? "; kept as refused/" + name : "; too large to keep"));
}

// ---- the end

// A workspace that is being deleted, or has lost its files, must not wait for room or a repair.
bool IncomingPacks::may_go_without(const Subject& subject, const Error& error) {
  if (stopping_) return false;
  const auto row = state_db::WorkspaceTable(context_.store).find(subject.workspace);
  return !row || row->state == WorkspaceState::deleting || row->state == WorkspaceState::deleted ||
         error.code() == Code::corrupted || error.code() == Code::not_found;
}

void IncomingPacks::keep_aside(const Subject& subject, const Error& error) {
  const IncomingDirectory incoming = directory(subject.sandbox);
  for (const uint64_t number : incoming.packs()) {
    incoming.keep(number,
                  context_.options.store + "/workspaces/" + subject.workspace.str() + "/refused",
                  subject.sandbox.str() + "-" + std::to_string(number) + ".pack");
  }
  context_.store.add_event("sandbox.files_left",
                           {.workspace = subject.workspace, .sandbox = subject.sandbox},
                           "changes of the other machine are only in refused/: " + error.message());
}

void IncomingPacks::finish(const state_db::SandboxRow& sandbox, const Mount& mount) {
  const Subject subject{sandbox.id, sandbox.workspace};
  const IncomingDirectory incoming = directory(sandbox.id);
  if (!incoming.refused() && sandbox.boot_id != context_.store.clock().boot_id())
    incoming.wait_again();
  if (!incoming.refused() && !incoming.packs().empty()) {
    const auto guard = appliers_.lock(sandbox.workspace.str(), kApplying, kPatience);
    try {
      apply_all(subject, *mount());
    } catch (const Error& error) {
      note_failure(subject, error);
      if (!incoming.refused() && !may_go_without(subject, error)) throw;
      if (!incoming.refused()) keep_aside(subject, error);
    }
  }
  if (!incoming.applied().empty()) base::sync_file_system(context_.options.store);
  wake_waiters(sandbox.id);
  const std::lock_guard lock(mutex_);
  states_.erase(sandbox.id);
}

}  // namespace moorage::workspace
