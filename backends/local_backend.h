// What the backends on this host have in common: a control group that is the truth about the
// sandbox, moorage-launch that makes its inside, the warden that answers in it. `lxc` and `process`
// say what they can do and how the launcher works for them; all the rest is here.
//
// A sandbox runs while its warden lives. When the warden is gone it is stopped, whatever is left of
// it; start and destroy first kill the rest and see the group empty, so there are never two wardens
// on one tree.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "backends/backend.h"
#include "backends/cgroups.h"
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
  std::unique_ptr<ExecGroup> exec_group(const std::string& name,
                                        const std::string& exec_name) override;

 protected:
  // What differs. `probe` fills in what the backend can do, given the hierarchies; it may throw
  // with the reason why it cannot work here.
  virtual void probe(const CgroupHierarchies& hierarchies, Capabilities& can) = 0;
  // Whether what was found still holds; else it is probed again. Quick.
  virtual bool holds(const Capabilities&) { return true; }
  // Throws what is wrong with the spec's image.
  virtual void check_image(const SandboxSpec& spec);
  // Fills mode and rootfs, and what the launcher joins; puts on the group what only this backend
  // has.
  virtual void plan(const SandboxSpec& spec, const SandboxCgroup& group, LaunchPlan& plan) = 0;
  // What an engine keeps of a sandbox whose processes are gone. Does not throw.
  virtual void forget(const std::string&) {}

  const BackendOptions options_;

 private:
  const CgroupHierarchies& hierarchies();  // throws unsupported
  SandboxCgroup group(const std::string& name);
  void copy_programs();
  std::optional<SandboxStatus> adopt(const SandboxSpec& spec, SandboxCgroup& group);

  base::KeyedMutex starting_;  // by name: the second one finds what the first one made
  std::mutex mutex_;           // of the next two; held for a moment only
  std::optional<CgroupHierarchies> hierarchies_;
  std::optional<Capabilities> capabilities_;  // changed with probe_mutex_ held as well
  std::mutex probe_mutex_;  // what a probe makes (below, and in subclasses) is made once
  // Of the programs as they were when this daemon started. An upgrade replaces them a moment before
  // it restarts the daemon, and a daemon starts sandboxes with programs of its own release only.
  std::string launch_copy_;
  std::string warden_copy_;
};

}  // namespace moorage::backends
