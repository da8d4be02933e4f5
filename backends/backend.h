// The seam between workspaces and the system that runs their commands. A backend makes a sandbox
// from a spec, under a name derived from ids, so that after a crash everything has an owner: `list`
// finds exactly the sandboxes of this store. Start by name is idempotent; destroying a missing
// sandbox succeeds. If a spec exceeds `capabilities`, a backend throws Error(unsupported) with the
// reason; it never falls back silently. A new backend is one file and one line in registry.cc.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/cgroups/exec_group.h"
#include "backends/sandbox_spec.h"
#include "base/os/process.h"

namespace moorage::backends {

enum class Isolation { none, container, userns, gvisor, vm };  // weakest first
std::string_view isolation_name(Isolation isolation);

struct Capabilities {
  bool usable = false;
  std::string reason;                     // why not usable, and what to do; empty if usable
  Isolation isolation = Isolation::none;  // when the spec names no runtime
  // Runtimes a spec may name, with the isolation of each. Empty: no choice.
  std::map<std::string, Isolation> runtimes{};
  // All of its sandboxes share these ids, regardless of the range the caller reserved for one.
  std::optional<uint32_t> first_host_id{};
  bool freeze = false;
  // Mounts can be exchanged at run time (base/os/namespaces.h): no process inside can keep
  // copies of them in a namespace of its own.
  bool restack = false;
  bool limits_memory = false;  // these with `remote`: on each machine, once known
  bool limits_cpu = false;
  bool limits_pids = false;
  bool network_none = false;
  bool network_rules = false;  // hosts by name, through moorage-egress
  bool sudo = false;
  bool root = false;  // commands may run as the sandbox's root; with `remote`, on some machine
  // Commands run on another machine; the files here follow by packs (remote/link_client.h).
  bool remote = false;
};

// The isolation with that runtime; "" is the default. Throws unsupported for an unknown one.
Isolation isolation_of(const Capabilities& can, const std::string& runtime);

// The identity of an image, independent of its local name.
struct ImageIdentity {
  std::string id;      // "sha256:...", a digest of its contents; empty: the host's own
  std::string source;  // "registry/name@sha256:...": its origin; empty: unknown
};

enum class SandboxState { absent, running, frozen, stopped };

struct SandboxStatus {
  SandboxState state = SandboxState::absent;
  base::ProcessIdentity init;  // host pid of the warden; pid 0 unless running or frozen
  uint64_t memory_bytes = 0;   // in use now
  uint64_t cpu_usec = 0;       // used since start
  uint32_t processes = 0;
  std::string release;  // of the warden; empty: too old to report it
};

// The address of the sandbox's envd API. Local: a unix socket that exists only on the host.
struct Endpoint {
  std::string unix_socket;
};

class Machines;  // remote/machines.h

class Backend {
 public:
  virtual ~Backend() = default;
  // Probed once, then cached; an engine is polled for whether it still answers.
  virtual Capabilities capabilities() = 0;
  // The last result, without a query: for commands, which never wait for an engine.
  virtual Capabilities known_capabilities() { return capabilities(); }
  // Throws whatever `start` would refuse before it acts. Does not check the mounts.
  virtual void check(const SandboxSpec& spec) = 0;
  // Returns when the warden answers. After any failure nothing is left behind.
  virtual SandboxStatus start(const SandboxSpec& spec) = 0;
  // For a backend with Capabilities::remote, once the mounts of the workspace are in place: sends
  // these layers, oldest first, and starts the warden there. All that `start` did before was to
  // reach the machine and to send what lies below. Returns when the warden answers.
  virtual void attach(const std::string& name, const std::vector<FileLayer>& layers);
  // Makes the warden end everything (TERM, then KILL after grace), then destroys.
  virtual void stop(const std::string& name, std::chrono::milliseconds grace) = 0;
  virtual void freeze(const std::string& name) = 0;
  virtual void thaw(const std::string& name) = 0;
  // Kills all, waits until the cgroup is empty, removes every trace except spec.directory.
  virtual void destroy(const std::string& name) = 0;
  // The truth from cgroup and init process, not the engine's report.
  virtual SandboxStatus inspect(const std::string& name) = 0;
  // Host pids of all processes the agent started, in no order; exact while frozen.
  virtual std::vector<pid_t> members(const std::string& name) = 0;
  virtual std::vector<std::string> list() = 0;
  virtual Endpoint endpoint(const std::string& name) = 0;
  // Starts the sandbox's moorage-egress, in its control group and for as long as it lives.
  // `control` is the listening socket of egress/control.h, borrowed. Returns when it takes
  // messages.
  virtual void start_egress(const std::string& name, int control) = 0;
  virtual void kill_egress(const std::string& name) = 0;  // none: fine
  // The process group of one exec (idempotent by exec_name); see backends/cgroups/exec_group.h.
  virtual std::unique_ptr<ExecGroup> exec_group(const std::string& name,
                                                const std::string& exec_name) = 0;
  // Null, unless its sandboxes run on other machines.
  virtual Machines* machines() { return nullptr; }
  // By name or id; empty: no such image. May query the engine.
  virtual std::optional<ImageIdentity> find_image(const std::string& image) {
    if (image != "host") return std::nullopt;
    return ImageIdentity{};
  }
};

}  // namespace moorage::backends
