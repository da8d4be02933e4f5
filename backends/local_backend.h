// The shared part of the backends on this host: a control group that is the truth about the
// sandbox, moorage-launch that makes its inside, the warden that answers in it. `lxc` and `process`
// only declare their capabilities and how the launcher works for them.
//
// A sandbox runs while its warden lives. Without its warden it is stopped, whatever else is left;
// start and destroy first kill the rest and wait until the group is empty, so there are never two
// wardens on one tree.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "backends/backend.h"
#include "backends/cgroups/cgroups.h"
#include "backends/launcher.h"
#include "backends/registry.h"
#include "base/keyed_mutex.h"

namespace moorage::backends {

class LocalBackend : public Backend {
 public:
  explicit LocalBackend(const BackendOptions& options) : options_(options) {}

  Capabilities capabilities() override;
  Capabilities known_capabilities() override;
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
  void start_egress(const std::string& name, int control) override;
  void kill_egress(const std::string& name) override;
  std::unique_ptr<ExecGroup> exec_group(const std::string& name,
                                        const std::string& exec_name) override;

 protected:
  // The differences. `probe` fills in what the backend can do with these hierarchies; it may throw
  // the reason why it cannot work here.
  virtual void probe(const CgroupHierarchies& hierarchies, Capabilities& can) = 0;
  // Whether the cached result still holds; otherwise probed again. Quick.
  virtual bool holds(const Capabilities&) { return true; }
  // Throws if the sandbox could not be held within its limits.
  virtual void check_limits(const SandboxSpec& spec, const Capabilities& can);
  // Throws if the spec's image is not acceptable.
  virtual void check_image(const SandboxSpec& spec);
  // Fills mode and rootfs, and the groups the launcher joins; applies to the group whatever only
  // this backend needs.
  virtual void plan(const SandboxSpec& spec, const SandboxCgroup& group, LaunchPlan& plan) = 0;
  // Removes an engine's record of a sandbox whose processes are gone. Does not throw.
  virtual void forget(const std::string&) {}

  const BackendOptions options_;

 private:
  const CgroupHierarchies& hierarchies();  // throws unsupported
  SandboxCgroup group(const std::string& name);
  std::optional<SandboxStatus> adopt(const SandboxSpec& spec, SandboxCgroup& group);

  base::KeyedMutex starting_;  // by name: a second start finds the first one's result
  std::mutex mutex_;           // for the next two; held only briefly
  std::optional<CgroupHierarchies> hierarchies_;
  std::optional<Capabilities> capabilities_;  // to change it, hold probe_mutex_ too
  std::mutex probe_mutex_;  // a probe's results (below, and in subclasses) are made once
  // Copies of the programs from the start of this daemon. An upgrade replaces them just before it
  // restarts the daemon, and a daemon starts sandboxes only with programs of its own release.
  std::string launch_copy_;
  std::string warden_copy_;
  std::string egress_copy_;
};

}  // namespace moorage::backends
