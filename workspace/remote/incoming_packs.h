// Applies the packs that a remote sandbox's moorage-link put into incoming/ to the workspace's
// files (packs/merged/applier.h): in order, one applier for a workspace at a time, on threads that
// its owner shares (base/fair_pool.h). A pack stays until its files are on the disk; after a crash
// it is applied again, which is harmless.
//
// A pack that has no room stays and is tried again, with growing pauses; `trouble` says why. One
// that breaks a rule is hostile: it is kept in workspaces/<ws>/refused/, nothing that came later
// from that machine is applied or believed, and the listeners end the sandbox.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fair_pool.h"
#include "base/keyed_mutex.h"
#include "base/listeners.h"
#include "state_db/tables/sandboxes.h"
#include "workspace/context/context.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/remote/incoming_directory.h"

namespace moorage::workspace {

class RefusalListener {
 public:
  virtual ~RefusalListener() = default;
  // What its machine sends cannot be trusted. False: another operation holds the workspace; called
  // again a second later. May block; must not throw.
  virtual bool sandbox_refused(base::WorkspaceId workspace, base::SandboxId sandbox,
                               const std::string& why) = 0;
};

class IncomingPacks {
 public:
  // With the reason if the machine's changes were refused. Must not throw or wait for a workspace.
  using Then = std::function<void(const Error* refused)>;
  using Mount = std::function<std::shared_ptr<const SharedMounts>()>;
  using Listeners = base::Listeners<RefusalListener>;
  static constexpr std::chrono::milliseconds kPatience{30'000};

  explicit IncomingPacks(Context& context);
  ~IncomingPacks();

  [[nodiscard]] Listeners::Handle listen(RefusalListener& listener) {
    return listeners_.add(listener);
  }
  // Applies what is complete at the call. Throws the reason why something is not applied.
  void apply(const LiveSandbox& running);
  // Calls `then` when that is done: at once if nothing waits, else from another thread. It waits as
  // long as the packs do.
  void when_applied(const LiveSandbox& running, Then then);
  // For a sandbox whose processes are gone: all of it, synced. `mount` is called only if something
  // waits. Afterwards its directory may be removed. Caller holds the workspace's lock.
  void finish(const state_db::SandboxRow& sandbox, const Mount& mount);
  // While the guard lives, no pack is applied in this workspace. Conflict after `patience`.
  base::KeyedMutex::Guard pause(base::WorkspaceId workspace, const std::string& operation,
                                std::chrono::milliseconds patience = kPatience);
  // Why the packs of this sandbox wait; empty: they do not.
  std::string trouble(base::SandboxId sandbox);
  size_t waiting_ends(base::SandboxId sandbox);   // calls of when_applied() that wait
  size_t waiting(base::SandboxId sandbox) const;  // number of packs
  void tick();                                    // call it every second
  // Calls no `then` after this returns; applies nothing on threads of its own. The next daemon
  // finds the packs, and the ends of commands in their journals.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiter {
    uint64_t last = 0;  // the pack that it waits for
    Then then;
  };
  struct State {
    bool queued = false;
    std::vector<Waiter> waiters;
    unsigned failures = 0;
    std::string trouble;
    Clock::time_point next_try{};
    Clock::time_point next_sync{};
  };
  struct Subject {
    base::SandboxId sandbox;
    base::WorkspaceId workspace;
  };
  IncomingDirectory directory(base::SandboxId sandbox) const;
  void request(const LiveSandbox& running);
  bool is_due(base::SandboxId sandbox);
  void work(const LiveSandbox& known);
  std::optional<std::string> try_all(const LiveSandbox& running);
  void apply_all(const Subject& subject, const SharedMounts& mounted);
  void apply_one(const Subject& subject, const SharedMounts& mounted, uint64_t number);
  void write_files(const Subject& subject, const SharedMounts& mounted, uint64_t number);
  void note_success(base::SandboxId sandbox);
  void note_failure(const Subject& subject, const Error& error);
  void refuse(const Subject& subject, uint64_t number, const std::string& why);
  void keep_aside(const Subject& subject, const Error& error);
  bool may_go_without(const Subject& subject, const Error& error);
  void sync_if_due(base::SandboxId sandbox, base::KeyedMutex::Guard guard);
  void wake_waiters(base::SandboxId sandbox);

  Context& context_;
  base::KeyedMutex appliers_;  // by workspace
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::map<base::SandboxId, State> states_;
  Listeners listeners_;
  std::unique_ptr<base::FairPool> pool_;  // null: stopped. Last member: its work uses the others
};

}  // namespace moorage::workspace
