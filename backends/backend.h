// The seam between workspaces and whatever runs commands for them. A backend makes a sandbox from a
// spec under a name that is derived from ids, so that after a crash nothing lacks an owner: `list`
// finds all sandboxes of this store and only those. Start by name is idempotent; destroy of the
// missing succeeds. Asked for more than `capabilities` says, a backend throws Error(unsupported)
// with the reason; it never falls back in silence. A new backend is one file and one line in
// registry.cc.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/exec_group.h"
#include "base/process.h"

namespace moorage::backends {

enum class Isolation { none, container, userns, gvisor, vm };  // weakest first
std::string_view isolation_name(Isolation isolation);

struct Capabilities {
  bool usable = false;
  std::string reason;                     // why not usable, and what to do; empty if usable
  Isolation isolation = Isolation::none;  // where the spec names no runtime
  // What a spec may name as its runtime, and what each isolates. Empty: there is no choice.
  std::map<std::string, Isolation> runtimes{};
  bool any_image = false;  // any that the engine has, beside `host`
  // All of its sandboxes share these ids, whatever range the caller has for one.
  std::optional<uint32_t> first_host_id{};
  bool freeze = false;
  // The mounts can be exchanged while it runs (base/mount_namespace.h): nobody inside can have
  // copies of them in a namespace of his own.
  bool restack = false;
  bool limits_memory = false;
  bool limits_cpu = false;
  bool limits_pids = false;
  bool network_none = false;
  bool sudo = false;
  bool root = false;  // commands may run as root of the sandbox
};

// Of a sandbox with that runtime; "": the usual one. unsupported: it has no such runtime.
Isolation isolation_of(const Capabilities& can, const std::string& runtime);

struct Limits {
  uint64_t memory_bytes = 4ULL << 30;  // commands together; the warden has its own on top
  double cpus = 2;
  uint32_t pids = 4096;
};

inline constexpr int kOnlyPlace = -1;

// A detached mount made by the caller, to be attached at `target` (absolute, inside). Without one
// there is an empty directory, where the caller attaches it later (base/mount_namespace.h).
struct Mount {
  int fd = kOnlyPlace;  // borrowed for the call
  std::string target;
};

struct SandboxSpec {
  std::string name;       // "moorage-<store>-sb_7": also the container's and the cgroup's
  std::string directory;  // sandboxes/<sb>/, exists, ours alone, disposable
  std::string image = "host";
  std::string runtime{};       // of those in Capabilities; empty: the usual one
  uint32_t first_host_id = 0;  // inside ids 0..65535 are host ids first_host_id...
  std::vector<Mount> mounts;   // /workspace, /home/user, the git objects
  Limits limits;
  bool sudo = true;                             // password-less sudo inside the namespace
  std::map<std::string, std::string> labels{};  // for a person who looks at the engine
  std::chrono::milliseconds deadline{20'000};
};

// What an image is, whatever it is called here.
struct ImageIdentity {
  std::string id;      // "sha256:...": of its contents; empty: it is this host's own
  std::string source;  // "registry/name@sha256:...": where it was pulled from; empty: not known
};

enum class SandboxState { absent, running, frozen, stopped };

struct SandboxStatus {
  SandboxState state = SandboxState::absent;
  base::ProcessIdentity init;  // host pid of the warden; pid 0 unless running or frozen
  uint64_t memory_bytes = 0;   // in use now
  uint64_t cpu_usec = 0;       // used since start
  uint32_t processes = 0;
  std::string release;  // that started it; empty: one that did not say yet
};

// Where the sandbox's envd API is reached. Local: a unix socket that exists on the host only.
struct Endpoint {
  std::string unix_socket;
};

class Backend {
 public:
  virtual ~Backend() = default;
  // Probed once, then cached; an engine is asked whether it still answers.
  virtual Capabilities capabilities() = 0;
  // What that said last, asking nobody: for commands, which never wait for an engine.
  virtual Capabilities known_capabilities() { return capabilities(); }
  // Throws what `start` would refuse before it does anything. Of the mounts nothing is asked.
  virtual void check(const SandboxSpec& spec) = 0;
  // Returns when the warden answers. On any failure nothing is left behind.
  virtual SandboxStatus start(const SandboxSpec& spec) = 0;
  // Asks the warden to end everything (TERM, then KILL after grace), then destroys.
  virtual void stop(const std::string& name, std::chrono::milliseconds grace) = 0;
  virtual void freeze(const std::string& name) = 0;
  virtual void thaw(const std::string& name) = 0;
  // Kills all, waits until its cgroup is empty, removes every trace but spec.directory.
  virtual void destroy(const std::string& name) = 0;
  // The truth from cgroup and init process, not the engine's word.
  virtual SandboxStatus inspect(const std::string& name) = 0;
  // Host pids of all in it that the agent started, in no order; exact while it is frozen.
  virtual std::vector<pid_t> members(const std::string& name) = 0;
  virtual std::vector<std::string> list() = 0;
  virtual Endpoint endpoint(const std::string& name) = 0;
  // The group of processes of one exec (idempotent by exec_name); see exec_group.h.
  virtual std::unique_ptr<ExecGroup> exec_group(const std::string& name,
                                                const std::string& exec_name) = 0;
  // By its name or its id; nothing: there is no such image. May ask the engine.
  virtual std::optional<ImageIdentity> find_image(const std::string& image) {
    if (image != "host") return std::nullopt;
    return ImageIdentity{};
  }
};

}  // namespace moorage::backends
