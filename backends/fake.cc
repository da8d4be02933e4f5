#include "backends/fake.h"

#include <unistd.h>

#include "base/error.h"

namespace moorage::backends {
namespace {

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

// True once per scripted fault.
bool use_up(int& count) { return count > 0 && count-- > 0; }

}  // namespace

Capabilities FakeBackend::capabilities() {
  Capabilities can;
  can.usable = true;
  can.freeze = true;
  can.root = true;
  return can;
}

void FakeBackend::check(const SandboxSpec& spec) {
  if (!spec.name.starts_with(prefix_)) {
    throw Error(Code::invalid_argument,
                "sandbox name \"" + spec.name + "\" does not belong to this store");
  }
  isolation_of(capabilities(), spec.runtime);
}

FakeBackend::Sandbox& FakeBackend::find(const std::string& name) {
  auto entry = sandboxes_.find(name);
  if (entry == sandboxes_.end()) throw Error(Code::not_found, "there is no sandbox " + name);
  return entry->second;
}

SandboxStatus FakeBackend::start(const SandboxSpec& spec) {
  std::function<void(const SandboxSpec&)> before_start;
  {
    std::lock_guard lock(mutex_);
    before_start = faults_.before_start;
  }
  if (before_start) before_start(spec);
  check(spec);

  std::lock_guard lock(mutex_);
  if (use_up(faults_.fail_starts)) throw Error(Code::unavailable, "start refused by the script");
  Sandbox& sandbox = sandboxes_[spec.name];
  if (sandbox.status.state == SandboxState::absent ||
      sandbox.status.state == SandboxState::stopped) {
    ++starts_;
    sandbox.spec = spec;
    sandbox.spec.mounts.clear();  // their descriptors were borrowed
    sandbox.status = SandboxStatus{};
    sandbox.status.state = SandboxState::running;
    // A living process, for code that queries the kernel about it.
    sandbox.status.init = base::identify_process(getpid());
    sandbox.status.processes = 1;
  }
  if (use_up(faults_.lose_start_answers)) {
    throw Error(Code::unknown_outcome, "answer lost by the script");
  }
  return sandbox.status;
}

void FakeBackend::stop(const std::string& name, std::chrono::milliseconds) { destroy(name); }

void FakeBackend::freeze(const std::string& name) {
  std::lock_guard lock(mutex_);
  Sandbox& sandbox = find(name);
  if (sandbox.status.state == SandboxState::stopped) {
    throw Error(Code::conflict, name + " is not running");
  }
  sandbox.status.state = SandboxState::frozen;
}

void FakeBackend::thaw(const std::string& name) {
  std::lock_guard lock(mutex_);
  Sandbox& sandbox = find(name);
  if (sandbox.status.state == SandboxState::frozen) sandbox.status.state = SandboxState::running;
}

void FakeBackend::destroy(const std::string& name) {
  std::lock_guard lock(mutex_);
  if (use_up(faults_.fail_destroys))
    throw Error(Code::unavailable, "destroy refused by the script");
  sandboxes_.erase(name);
}

SandboxStatus FakeBackend::inspect(const std::string& name) {
  std::lock_guard lock(mutex_);
  auto entry = sandboxes_.find(name);
  return entry == sandboxes_.end() ? SandboxStatus{} : entry->second.status;
}

std::vector<pid_t> FakeBackend::members(const std::string&) { return {}; }

std::vector<std::string> FakeBackend::list() {
  std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, sandbox] : sandboxes_) names.push_back(name);
  return names;
}

Endpoint FakeBackend::endpoint(const std::string& name) {
  std::lock_guard lock(mutex_);
  find(name);
  return endpoint_;
}

std::unique_ptr<ExecGroup> FakeBackend::exec_group(const std::string& name, const std::string&) {
  std::lock_guard lock(mutex_);
  find(name);
  return std::make_unique<FakeExecGroup>();
}

void FakeBackend::set_faults(FakeFaults faults) {
  std::lock_guard lock(mutex_);
  faults_ = std::move(faults);
}

void FakeBackend::set_endpoint(Endpoint endpoint) {
  std::lock_guard lock(mutex_);
  endpoint_ = std::move(endpoint);
}

void FakeBackend::kill_init(const std::string& name) {
  std::lock_guard lock(mutex_);
  Sandbox& sandbox = find(name);
  sandbox.status = SandboxStatus{};
  sandbox.status.state = SandboxState::stopped;
}

int FakeBackend::starts() const {
  std::lock_guard lock(mutex_);
  return starts_;
}

std::unique_ptr<Backend> make_fake_backend(const BackendOptions& options) {
  return std::make_unique<FakeBackend>(options);
}

}  // namespace moorage::backends
