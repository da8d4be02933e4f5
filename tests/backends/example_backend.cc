#include "backends/local_backend.h"

namespace moorage::backends {
namespace {

// Processes of the host, as in `process`: an example that isolates nothing.
class ExampleBackend : public LocalBackend {
 public:
  using LocalBackend::LocalBackend;

 protected:
  void probe(const CgroupHierarchies&, Capabilities& can) override {
    can.isolation = Isolation::none;
    can.root = true;
  }

  void plan(const SandboxSpec&, const SandboxCgroup& group, LaunchPlan& plan) override {
    plan.mode = "process";
    group.add_part("warden");
    plan.join_files = group.join_files("warden");
  }
};

}  // namespace

std::unique_ptr<Backend> make_example_backend(const BackendOptions& options) {
  return std::make_unique<ExampleBackend>(options);
}

}  // namespace moorage::backends
