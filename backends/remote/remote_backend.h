// The backends whose sandboxes run on other machines. Here such a sandbox is a control group with
// the keeper of a moorage-link (base/wire/link_config.h) as its process 1, and the workspace's
// mounts in the keeper's namespace; so everything that local sandboxes have, adoption after a kill
// included, is LocalBackend's. Providers differ by their driver in moorage-link and by the places
// that the configuration names: hosts for ssh, one account for others.
//
// A keeper that was killed is replaced by a start with the same name and directory: the commands
// there run on meanwhile.
//
// A note on disk (places.h) names each machine before it is touched, until nothing of the sandbox
// is left there. So a machine that cannot be reached when its sandbox is destroyed is not
// forgotten.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/local_backend.h"
#include "backends/remote/machines.h"
#include "backends/remote/pending_kills.h"
#include "backends/remote/places.h"
#include "base/keyed_mutex.h"
#include "base/wire/link_config.h"

namespace moorage::backends {

class RemoteBackend : public LocalBackend, public Machines {
 public:
  // `driver`: of moorage-link.
  RemoteBackend(const BackendOptions& options, std::string driver);

  Capabilities capabilities() override;
  Capabilities known_capabilities() override;
  SandboxStatus start(const SandboxSpec& spec) override;
  void attach(const std::string& name, const std::vector<FileLayer>& layers) override;
  void stop(const std::string& name, std::chrono::milliseconds grace) override;
  void destroy(const std::string& name) override;
  std::vector<pid_t> members(const std::string&) override { return {}; }  // none of them here
  std::unique_ptr<ExecGroup> exec_group(const std::string& name,
                                        const std::string& exec_name) override;

  Machines* machines() override { return this; }
  std::vector<PlaceUse> places() override;
  std::vector<MachineNote> notes() override { return places_.notes(); }
  std::vector<std::string> list_there(const std::string& place,
                                      std::chrono::milliseconds deadline) override;
  void remove_there(const MachineNote& note, std::chrono::milliseconds deadline) override;
  void find_key() override;
  void leave(const std::string& sandbox) override;
  bool salvage_there(const MachineNote& note, const std::string& salvage,
                     std::chrono::milliseconds deadline) override;

 protected:
  void probe(const CgroupHierarchies& hierarchies, Capabilities& can) override;
  void check_limits(const SandboxSpec&, const Capabilities&) override {}
  void plan(const SandboxSpec& spec, const SandboxCgroup& group, LaunchPlan& plan) override;

 private:
  Capabilities with_machines(Capabilities can) const;
  SandboxStatus start_keeper(const SandboxSpec& spec, const MachineNote& note);
  bool pauses() const;  // a stop pauses the machine instead of ending it
  bool end_there(const std::string& name, std::chrono::milliseconds grace);
  void learn(const std::string& name);
  Isolation isolation() const;
  const ProviderOptions* account() const;  // null: ssh, or it is not configured
  std::string key_source() const;          // a path
  base::LinkConfig machine(const MachineNote& note) const;
  struct Errand {
    std::vector<std::string> command;  // with arguments of its own
    std::string directory{};           // of the sandbox here
  };
  std::string run_errand(const Errand& errand, const MachineNote& note,
                         std::chrono::milliseconds deadline);
  // False, and told in the log: it did not answer in time; the note stays.
  bool remove_machine(const MachineNote& note, std::chrono::milliseconds patience);

  const std::string driver_;
  Places places_;
  std::string link_copy_;  // set by the probe, as the others
  std::string outpost_copy_;
  std::string warden_copy_;
  base::KeyedMutex attaching_;  // by name
  PendingKills kills_;
};

}  // namespace moorage::backends
