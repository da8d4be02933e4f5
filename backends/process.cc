// Backend `process`: no isolation at all. Commands see the host's files, processes and network,
// with an id of the sandbox's range that owns nothing; only the workspace's mounts are private. For
// hosts without LXC that run trusted code. Limits, freezing and killing work as in `lxc`.
#include "backends/local_backend.h"
#include "base/error.h"

namespace moorage::backends {
namespace {

class ProcessBackend : public LocalBackend {
 public:
  explicit ProcessBackend(const BackendOptions& options) : LocalBackend(options) {}

 protected:
  void probe(const CgroupHierarchies&, Capabilities& can) override {
    can.isolation = Isolation::none;
    can.root = true;  // the sandbox's first id: unused on the host
    if (!options_.allow_process) {
      throw Error(Code::permission_denied,
                  "backend process provides no isolation and is not allowed",
                  "set sandbox.allow_process_backend: true in the configuration");
    }
  }

  void plan(const SandboxSpec&, const SandboxCgroup& group, LaunchPlan& plan) override {
    plan.mode = "process";
    group.add_part("warden");
    plan.join_files = group.join_files("warden");
  }
};

}  // namespace

std::unique_ptr<Backend> make_process_backend(const BackendOptions& options) {
  return std::make_unique<ProcessBackend>(options);
}

}  // namespace moorage::backends
