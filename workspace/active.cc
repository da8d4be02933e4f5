#include "workspace/active.h"

#include <limits>
#include <utility>

#include "base/error.h"

namespace moorage::workspace {
namespace {

// An unmount waits for the disk, so a few at a time lose nothing.
constexpr size_t kClosers = 4;

}  // namespace

Active::Active() : closers_(kClosers, std::numeric_limits<size_t>::max()) {}

// What still runs gives its mounts to the closers, which finish and go after this.
Active::~Active() { running_.clear(); }

std::shared_ptr<const Running> Active::running(base::WorkspaceId workspace) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(workspace);
  return found == running_.end() ? nullptr : found->second;
}

std::shared_ptr<const Running> Active::by_sandbox(base::SandboxId sandbox) {
  const std::lock_guard lock(mutex_);
  for (const auto& [workspace, running] : running_) {
    if (running->sandbox == sandbox) return running;
  }
  return nullptr;
}

void Active::set_running(std::shared_ptr<const Running> running) {
  const std::lock_guard lock(mutex_);
  running_[running->workspace] = std::move(running);
}

void Active::clear_running(base::SandboxId sandbox) {
  std::shared_ptr<const Running> dropped;  // its mounts are closed outside the lock
  const std::lock_guard lock(mutex_);
  for (auto it = running_.begin(); it != running_.end(); ++it) {
    if (it->second->sandbox != sandbox) continue;
    dropped = std::move(it->second);
    running_.erase(it);
    return;
  }
}

std::vector<std::shared_ptr<const Running>> Active::all() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const Running>> all;
  for (const auto& [workspace, running] : running_) all.push_back(running);
  return all;
}

std::shared_ptr<const Mounted> Active::share(base::WorkspaceId workspace, Mounted mounted) {
  const auto* owned = new Mounted(std::move(mounted));
  const std::lock_guard lock(mutex_);
  open_[workspace] += 1;
  std::shared_ptr<const Mounted> shared(
      owned, [this, workspace](const Mounted* last) { close(workspace, last); });
  mounted_[workspace] = shared;
  return shared;
}

void Active::close(base::WorkspaceId workspace, const Mounted* mounted) {
  closers_.submit([this, workspace, mounted] {
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

bool Active::mounted(base::WorkspaceId workspace) {
  const std::lock_guard lock(mutex_);
  return open_.contains(workspace);
}

void Active::on_rest(std::function<void(base::WorkspaceId)> callback) {
  const std::lock_guard lock(rest_mutex_);
  on_rest_ = std::move(callback);
}

std::shared_ptr<const Mounted> Active::at_rest(base::WorkspaceId workspace,
                                               const std::function<Mounted()>& mount,
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

void Active::wait_unmounted(base::WorkspaceId workspace, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (closed_.wait_for(lock, patience, [&] { return !open_.contains(workspace); })) return;
  throw base::Error(
      base::Code::conflict,
      workspace.str() + " is busy: a file is being transferred, or waits for the disk",
      "wait for that to end, then try again");
}

}  // namespace moorage::workspace
