// Backend `lxc`: an unprivileged container, made by liblxc inside moorage-launch. LXC is not used
// afterwards: with its monitor killed, `lxc-info` says STOPPED while the container runs.
#include <unistd.h>

#include <optional>

#include "backends/cgroups/device_rules.h"
#include "backends/host_image.h"
#include "backends/local_backend.h"
#include "backends/probe.h"
#include "base/error.h"

namespace moorage::backends {
namespace {

class LxcBackend : public LocalBackend {
 public:
  explicit LxcBackend(const BackendOptions& options)
      : LocalBackend(options), image_(options.images_directory) {}

 protected:
  void probe(const CgroupHierarchies&, Capabilities& can) override {
    can.isolation = Isolation::userns;
    can.network_none = true;
    can.network_rules = true;
    can.root = true;
    // A mount namespace inside would keep the old mounts without anyone noticing.
    can.restack = !options_.nested_namespaces;
    for (const Check& check : check_container_host(options_.images_directory)) {
      if (!check.ok) throw Error(Code::unsupported, check.text, check.hint);
    }
    device_rules_.emplace();
    image_.ensure();  // 0.3 s, once per state of the host: not in the first start
    can.sudo = access("/usr/bin/sudo", X_OK) == 0;
  }

  void plan(const SandboxSpec&, const SandboxCgroup& group, LaunchPlan& plan) override {
    plan.mode = "lxc";
    plan.rootfs = image_.ensure();
    plan.join_files = group.join_files("launch");
    plan.nested_namespaces = options_.nested_namespaces;
    device_rules_->apply(group.unified_path());
  }

 private:
  HostImage image_;
  std::optional<DeviceRules> device_rules_;  // set by the probe
};

}  // namespace

std::unique_ptr<Backend> make_lxc_backend(const BackendOptions& options) {
  return std::make_unique<LxcBackend>(options);
}

}  // namespace moorage::backends
