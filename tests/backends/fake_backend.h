// A backend without processes, for tests of the layers above: sandboxes are entries in memory. It
// keeps the promises of the contract suite but cannot run commands: `endpoint` names a socket
// without a listener.
#pragma once

#include <unistd.h>

#include <map>
#include <mutex>
#include <string>

#include "backends/backend.h"
#include "backends/registry.h"
#include "base/error.h"

namespace moorage::backends {

// It never contains a process.
class FakeExecGroup : public ExecGroup {
 public:
  std::vector<Fd> join_fds() override { return {}; }
  Fd kill_fd() override { return {}; }
  void kill() override {}
  uint64_t oom_kills() override { return 0; }
  uint64_t refused_forks() override { return 0; }
  bool empty() override { return true; }
  std::vector<pid_t> members(size_t) override { return {}; }
  uint64_t processes() override { return 0; }
  void remove() override {}
};

class FakeBackend : public Backend {
 public:
  explicit FakeBackend(const BackendOptions& options) : prefix_(options.name_prefix) {}

  Capabilities capabilities() override {
    Capabilities can;
    can.usable = can.freeze = can.root = can.network_none = true;
    return can;
  }

  void check(const SandboxSpec& spec) override {
    if (!spec.name.starts_with(prefix_)) {
      throw Error(Code::invalid_argument,
                  "sandbox name \"" + spec.name + "\" does not belong to this store");
    }
    isolation_of(capabilities(), spec.runtime);
  }

  SandboxStatus start(const SandboxSpec& spec) override {
    check(spec);
    std::lock_guard lock(mutex_);
    SandboxStatus& status = sandboxes_[spec.name];
    if (status.state == SandboxState::absent || status.state == SandboxState::stopped) {
      ++starts_;
      status = {};
      status.state = SandboxState::running;
      // A living process, for code that queries the kernel about it.
      status.init = base::identify_process(getpid());
      status.processes = 1;
    }
    return status;
  }

  void stop(const std::string& name, std::chrono::milliseconds) override { destroy(name); }

  void freeze(const std::string& name) override {
    std::lock_guard lock(mutex_);
    SandboxState& state = find(name).state;
    if (state == SandboxState::stopped) throw Error(Code::conflict, name + " is not running");
    state = SandboxState::frozen;
  }

  void thaw(const std::string& name) override {
    std::lock_guard lock(mutex_);
    SandboxState& state = find(name).state;
    if (state == SandboxState::frozen) state = SandboxState::running;
  }

  void destroy(const std::string& name) override {
    std::lock_guard lock(mutex_);
    sandboxes_.erase(name);
  }

  SandboxStatus inspect(const std::string& name) override {
    std::lock_guard lock(mutex_);
    const auto entry = sandboxes_.find(name);
    return entry == sandboxes_.end() ? SandboxStatus{} : entry->second;
  }

  std::vector<pid_t> members(const std::string&) override { return {}; }

  std::vector<std::string> list() override {
    std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, status] : sandboxes_) names.push_back(name);
    return names;
  }

  Endpoint endpoint(const std::string& name) override {
    std::lock_guard lock(mutex_);
    find(name);
    return {"/nonexistent/moorage-fake.sock"};
  }

  void start_egress(const std::string&, int) override {
    throw Error(Code::unsupported, "the fake backend has no network");
  }

  void kill_egress(const std::string&) override {}

  std::unique_ptr<ExecGroup> exec_group(const std::string& name, const std::string&) override {
    std::lock_guard lock(mutex_);
    find(name);
    return std::make_unique<FakeExecGroup>();
  }

  // The sandbox dies by itself. This and the next are safe from any thread.
  void kill_init(const std::string& name) {
    std::lock_guard lock(mutex_);
    SandboxStatus& status = find(name);
    status = {};
    status.state = SandboxState::stopped;
  }

  int starts() const {  // that made a sandbox, for "exactly once" checks
    std::lock_guard lock(mutex_);
    return starts_;
  }

 private:
  SandboxStatus& find(const std::string& name) {
    const auto entry = sandboxes_.find(name);
    if (entry == sandboxes_.end()) throw Error(Code::not_found, "there is no sandbox " + name);
    return entry->second;
  }

  const std::string prefix_;
  mutable std::mutex mutex_;
  std::map<std::string, SandboxStatus> sandboxes_;
  int starts_ = 0;
};

}  // namespace moorage::backends
