// A backend without processes, for tests of the layers above: sandboxes are entries in memory, and
// faults are scripted. It keeps the promises of the contract suite but cannot run commands:
// `endpoint` names a socket without a listener, unless the test sets one.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "backends/backend.h"
#include "backends/registry.h"

namespace moorage::backends {

struct FakeFaults {
  int fail_starts = 0;         // this many next starts throw unavailable and leave nothing
  int lose_start_answers = 0;  // this many next starts succeed, then throw unknown_outcome
  int fail_destroys = 0;       // this many next destroys throw unavailable and change nothing
  std::function<void(const SandboxSpec&)> before_start;  // a hook for waiting or throwing
};

class FakeBackend : public Backend {
 public:
  explicit FakeBackend(const BackendOptions& options) : prefix_(options.name_prefix) {}

  Capabilities capabilities() override;
  void check(const SandboxSpec& spec) override;
  SandboxStatus start(const SandboxSpec& spec) override;
  void stop(const std::string& name, std::chrono::milliseconds grace) override;
  void freeze(const std::string& name) override;
  void thaw(const std::string& name) override;
  void destroy(const std::string& name) override;
  SandboxStatus inspect(const std::string& name) override;
  std::vector<pid_t> members(const std::string& name) override;
  std::vector<std::string> list() override;
  Endpoint endpoint(const std::string& name) override;
  std::unique_ptr<ExecGroup> exec_group(const std::string& name,
                                        const std::string& exec_name) override;

  // The script. Safe from any thread.
  void set_faults(FakeFaults faults);
  void set_endpoint(Endpoint endpoint);     // of all sandboxes from now on
  void kill_init(const std::string& name);  // the sandbox dies by itself
  int starts() const;                       // that made a sandbox, for "exactly once" checks

 private:
  struct Sandbox {
    SandboxSpec spec;
    SandboxStatus status;
  };
  Sandbox& find(const std::string& name);

  const std::string prefix_;
  mutable std::mutex mutex_;
  std::map<std::string, Sandbox> sandboxes_;
  FakeFaults faults_;
  Endpoint endpoint_{"/nonexistent/moorage-fake.sock"};
  int starts_ = 0;
};

}  // namespace moorage::backends
