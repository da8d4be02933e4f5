#include "workspace/context/live_sandboxes.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/os/process.h"

namespace moorage::workspace {
namespace {

// An unmount waits for the disk, so a few at a time suffice. One user gets at most half of them.
constexpr size_t kClosers = 4;
// Our own work in a running sandbox (a query, the start of a command) takes milliseconds.
constexpr std::chrono::milliseconds kOwnUse{500};
constexpr std::chrono::milliseconds kBetweenLooks{1};

LiveSandbox copy_without_mounts(const LiveSandbox& running) {
  LiveSandbox copy = running;
  copy.mounted.reset();  // never the last reference: `running` keeps one
  return copy;
}

}  // namespace

int64_t age_ms(const base::ProcessIdentity& init, const base::Clock& clock) {
  static const auto ticks_a_second = static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  const auto started_ms = static_cast<int64_t>(init.start_ticks * 1000 / ticks_a_second);
  return std::max<int64_t>(0, clock.boot_ms() - started_ms);
}

LiveSandboxes::LiveSandboxes() : closers_(kClosers, std::numeric_limits<size_t>::max()) {}

// The running sandboxes give their mounts to closers_, whose destructor then waits for them.
LiveSandboxes::~LiveSandboxes() { running_.clear(); }

std::shared_ptr<const LiveSandbox> LiveSandboxes::running(base::WorkspaceId workspace) {
  std::unique_lock lock(mutex_);
  exchanged_.wait(lock, [&] { return !exchanging_.contains(workspace); });
  const auto found = running_.find(workspace);
  return found == running_.end() ? nullptr : found->second;
}

base::SandboxId LiveSandboxes::running_sandbox(base::WorkspaceId workspace) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(workspace);
  return found == running_.end() ? base::SandboxId{} : found->second->sandbox;
}

std::shared_ptr<const LiveSandbox> LiveSandboxes::by_sandbox(base::SandboxId sandbox) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto found = std::find_if(running_.begin(), running_.end(), [&](const auto& one) {
      return one.second->sandbox == sandbox;
    });
    if (found == running_.end()) return nullptr;
    if (!exchanging_.contains(found->first)) return found->second;
    exchanged_.wait(lock);  // search again: the iterator may be stale
  }
}

std::optional<LiveSandbox> LiveSandboxes::without_mounts(base::SandboxId sandbox) {
  const std::lock_guard lock(mutex_);
  for (const auto& [workspace, running] : running_) {
    if (running->sandbox == sandbox) return copy_without_mounts(*running);
  }
  return std::nullopt;
}

std::optional<LiveSandbox> LiveSandboxes::without_mounts(base::WorkspaceId workspace) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(workspace);
  if (found == running_.end()) return std::nullopt;
  return copy_without_mounts(*found->second);
}

void LiveSandboxes::set_running(std::shared_ptr<const LiveSandbox> running) {
  const std::lock_guard lock(mutex_);
  rests_.erase(running->workspace);
  running_[running->workspace] = std::move(running);
}

void LiveSandboxes::clear_running(base::SandboxId sandbox) {
  std::shared_ptr<const LiveSandbox> dropped;  // its mounts are closed outside the lock
  const std::lock_guard lock(mutex_);
  for (auto it = running_.begin(); it != running_.end(); ++it) {
    if (it->second->sandbox != sandbox) continue;
    dropped = std::move(it->second);
    running_.erase(it);
    forget_look(dropped->workspace);
    return;
  }
}

// Call with the lock held.
void LiveSandboxes::forget_look(base::WorkspaceId workspace) {
  rests_.erase(workspace);
  const auto uses = uses_.find(workspace);
  if (uses != uses_.end() && uses->second.now == 0) uses_.erase(uses);
}

LiveSandboxes::Use LiveSandboxes::use(base::WorkspaceId workspace) {
  {
    const std::lock_guard lock(mutex_);
    Uses& uses = uses_[workspace];
    ++uses.now;
    uses.since_look = true;
  }
  return {this, [workspace](LiveSandboxes* owner) { owner->end_use(workspace); }};
}

void LiveSandboxes::end_use(base::WorkspaceId workspace) {
  const std::lock_guard lock(mutex_);
  const auto found = uses_.find(workspace);
  found->second.since_look = true;
  if (--found->second.now == 0 && !running_.contains(workspace)) uses_.erase(found);
}

bool LiveSandboxes::in_use(base::WorkspaceId workspace) {
  const std::lock_guard lock(mutex_);
  const auto found = uses_.find(workspace);
  return found != uses_.end() && found->second.now > 0;
}

bool LiveSandboxes::was_used(base::WorkspaceId workspace) {
  const std::lock_guard lock(mutex_);
  const auto found = uses_.find(workspace);
  return found != uses_.end() && std::exchange(found->second.since_look, false);
}

std::shared_ptr<const LiveSandbox> LiveSandboxes::take_unused(const LiveSandbox& running) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(running.workspace);
  if (found == running_.end() || found->second->sandbox != running.sandbox) return nullptr;
  const auto uses = uses_.find(running.workspace);
  if (uses != uses_.end() && uses->second.now > 0) return nullptr;
  auto taken = std::move(found->second);
  running_.erase(found);
  forget_look(running.workspace);
  return taken;
}

void LiveSandboxes::set_rest(base::WorkspaceId workspace, const IdleState& rest) {
  const std::lock_guard lock(mutex_);
  if (running_.contains(workspace)) rests_[workspace] = rest;
}

std::optional<IdleState> LiveSandboxes::rest(base::WorkspaceId workspace) {
  const std::lock_guard lock(mutex_);
  const auto found = rests_.find(workspace);
  if (found == rests_.end()) return std::nullopt;
  return found->second;
}

std::unique_ptr<LiveSandboxes::Exchange> LiveSandboxes::begin_exchange(
    std::shared_ptr<const LiveSandbox> running) {
  const auto until = std::chrono::steady_clock::now() + kOwnUse;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = running_.find(running->workspace);
      if (found == running_.end() || found->second != running) return nullptr;
      // Two references: the caller's and the one in running_.
      if (running.use_count() == 2 && running->mounted.use_count() == 1) {
        exchanging_.insert(running->workspace);
        return std::make_unique<Exchange>(*this, std::move(running));
      }
    }
    if (std::chrono::steady_clock::now() > until) return nullptr;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

void LiveSandboxes::end_exchange(std::shared_ptr<const LiveSandbox> running) {
  const std::lock_guard lock(mutex_);
  exchanging_.erase(running->workspace);
  const auto found = running_.find(running->workspace);
  if (found != running_.end()) found->second = std::move(running);  // otherwise it ended meanwhile
  exchanged_.notify_all();
}

std::vector<LiveSandbox> LiveSandboxes::all() {
  const std::lock_guard lock(mutex_);
  std::vector<LiveSandbox> all;
  for (const auto& [workspace, running] : running_) all.push_back(copy_without_mounts(*running));
  return all;
}

std::shared_ptr<const SharedMounts> LiveSandboxes::share(base::WorkspaceId workspace,
                                                         SharedMounts mounted) {
  const auto* owned = new SharedMounts(std::move(mounted));
  const std::lock_guard lock(mutex_);
  open_[workspace] += 1;
  std::shared_ptr<const SharedMounts> shared(
      owned, [this, workspace](const SharedMounts* last) { close(workspace, last); });
  mounted_[workspace] = shared;
  return shared;
}

void LiveSandboxes::close(base::WorkspaceId workspace, const SharedMounts* mounted) {
  closers_.submit({.user = mounted->owner}, [this, workspace, mounted] {
    delete mounted;
    bool last = false;
    {
      const std::lock_guard lock(mutex_);
      if (--open_[workspace] == 0) {
        open_.erase(workspace);
        mounted_.erase(workspace);
        last = true;
      }
      closed_.notify_all();
    }
    const std::lock_guard lock(rest_mutex_);
    if (last && on_rest_) on_rest_(workspace);
  });
}

bool LiveSandboxes::mounted(base::WorkspaceId workspace) {
  const std::lock_guard lock(mutex_);
  return open_.contains(workspace);
}

void LiveSandboxes::on_rest(std::function<void(base::WorkspaceId)> callback) {
  const std::lock_guard lock(rest_mutex_);
  on_rest_ = std::move(callback);
}

std::shared_ptr<const SharedMounts> LiveSandboxes::at_rest(
    base::WorkspaceId workspace, const std::function<SharedMounts()>& mount,
    std::chrono::milliseconds patience) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = mounted_.find(workspace); found != mounted_.end()) {
      if (auto mounted = found->second.lock()) return mounted;
    }
  }
  wait_unmounted(workspace, patience);
  return share(workspace, mount());
}

std::set<base::WorkspaceId> LiveSandboxes::mounted() {
  const std::lock_guard lock(mutex_);
  std::set<base::WorkspaceId> workspaces;
  for (const auto& [workspace, mounts] : open_) {
    if (mounts > 0) workspaces.insert(workspace);
  }
  return workspaces;
}

void LiveSandboxes::wait_unmounted(base::WorkspaceId workspace,
                                   std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (closed_.wait_for(lock, patience, [&] { return !open_.contains(workspace); })) return;
  throw base::Error(base::Code::conflict,
                    workspace.str() + " is busy: a file transfer or a disk write is in progress",
                    "wait for it to finish, then try again");
}

}  // namespace moorage::workspace
