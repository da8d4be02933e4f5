#include "workspace/active.h"

#include <thread>

#include "base/error.h"

namespace moorage::workspace {

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
  mounted_[running->workspace] = running->mounted;
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

std::shared_ptr<const Mounted> Active::at_rest(base::WorkspaceId workspace,
                                               const std::function<Mounted()>& mount) {
  {
    const std::lock_guard lock(mutex_);
    if (auto mounted = mounted_[workspace].lock()) return mounted;
  }
  auto mounted = std::make_shared<const Mounted>(mount());
  const std::lock_guard lock(mutex_);
  mounted_[workspace] = mounted;
  return mounted;
}

void Active::wait_unmounted(base::WorkspaceId workspace, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = mounted_.find(workspace);
      if (found == mounted_.end()) return;
      if (found->second.expired()) {
        mounted_.erase(found);
        return;
      }
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      throw base::Error(base::Code::conflict,
                        workspace.str() + " is busy: a file is being transferred",
                        "wait for the transfer to end, then try again");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace moorage::workspace
