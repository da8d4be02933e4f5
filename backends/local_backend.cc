#include "backends/local_backend.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "backends/cgroups/block_device.h"
#include "backends/cgroups/sandbox_label.h"
#include "backends/envd_client.h"
#include "base/error.h"
#include "base/os/files.h"

namespace moorage::backends {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFreezeDeadline{3'000};
constexpr milliseconds kDestroyDeadline{20'000};
constexpr milliseconds kEgressDeadline{10'000};
constexpr const char* kEgressPart = "egress";
constexpr milliseconds kHealthPatience{2'000};  // of a sandbox that should already run
constexpr uint32_t kIdsPerSandbox = 65536;

bool name_is_safe(const std::string& name) {
  return name.size() <= 200 && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
         });
}

// So that programs inside size themselves by the sandbox.
void show_limits(const SandboxSpec& spec, const SandboxCgroup& group, LaunchPlan& plan) {
  plan.cgroups = group.shown();
  plan.join_commands = group.join_files("cmd");
  plan.processors = group.choose_processors(spec.limits.cpus);
  if (plan.processors.empty()) return;
  plan.processors_file = spec.directory + "/processors";
  base::write_file(plan.processors_file, base::processors_text(plan.processors) + "\n", 0444);
}

}  // namespace

const CgroupHierarchies& LocalBackend::hierarchies() {
  std::lock_guard lock(mutex_);
  if (!hierarchies_) {
    hierarchies_ = find_cgroups();
    if (options_.favor_quick_cgroup_moves) favor_quick_moves(*hierarchies_);
  }
  return *hierarchies_;
}

SandboxCgroup LocalBackend::group(const std::string& name) {
  if (!name.starts_with(options_.name_prefix) || !name_is_safe(name)) {
    throw Error(Code::invalid_argument,
                "sandbox name \"" + name + "\" does not belong to this store");
  }
  return SandboxCgroup(hierarchies(), name);
}

Capabilities LocalBackend::capabilities() {
  std::lock_guard probing(probe_mutex_);
  if (capabilities_ && holds(*capabilities_)) return *capabilities_;
  Capabilities can;
  try {
    if (geteuid() != 0) throw Error(Code::permission_denied, "the daemon does not run as root");
    const CgroupHierarchies& found = hierarchies();
    can.freeze = true;
    can.limits_memory = found.memory;
    can.limits_cpu = found.cpu;
    can.limits_pids = found.pids;
    if (options_.disk_rate_bytes > 0) {
      if (!found.disk) {
        throw Error(Code::unsupported, "this host has no controller for disk rates (io or blkio)",
                    "remove sandbox.disk_rate_bytes from the configuration");
      }
      disk_of(options_.images_directory);
    }
    for (const std::string& program :
         {options_.launch_program, options_.warden_program, options_.egress_program}) {
      if (access(program.c_str(), X_OK) < 0) {
        throw Error(Code::unsupported, "the program " + program + " is missing");
      }
    }
    launch_copy_ = copy_program(options_.launch_program, options_.images_directory, 0100);
    warden_copy_ = copy_program(options_.warden_program, options_.images_directory, 0111);
    egress_copy_ = copy_program(options_.egress_program, options_.images_directory, 0100);
    probe(found, can);
    can.usable = true;
  } catch (const Error& error) {
    can.reason = error.message() + (error.hint().empty() ? "" : "; " + error.hint());
  }
  std::lock_guard lock(mutex_);
  capabilities_ = can;
  return can;
}

Capabilities LocalBackend::known_capabilities() {
  {
    std::lock_guard lock(mutex_);
    if (capabilities_) return *capabilities_;
  }
  return capabilities();
}

void LocalBackend::check(const SandboxSpec& spec) {
  const Capabilities can = capabilities();
  auto refuse = [](Code code, const std::string& why) { throw Error(code, why); };
  if (!can.usable) refuse(Code::unsupported, can.reason);
  if (spec.sudo && !can.sudo) {
    refuse(Code::unsupported, "this backend has no sudo; set sandbox.sudo: false");
  }
  check_limits(spec, can);
  isolation_of(can, spec.runtime);
  check_image(spec);
  if (spec.first_host_id < kIdsPerSandbox || spec.first_host_id > UINT32_MAX - kIdsPerSandbox) {
    refuse(Code::invalid_argument, "the id range of a sandbox must not include host ids");
  }
  if (can.first_host_id && spec.first_host_id != *can.first_host_id) {
    refuse(Code::invalid_argument, "the engine uses one id range of its own for all sandboxes");
  }
  for (const Mount& mount : spec.mounts) {
    if (mount.fd < kOnlyPlace || !mount.target.starts_with("/") ||
        mount.target.find("/..") != std::string::npos) {
      refuse(Code::invalid_argument, "invalid mount at \"" + mount.target + "\"");
    }
  }
}

void LocalBackend::check_limits(const SandboxSpec& spec, const Capabilities& can) {
  if (can.limits_memory && can.limits_pids && (can.limits_cpu || spec.limits.cpus <= 0)) return;
  throw Error(Code::unsupported,
              "this host cannot limit memory, processes and CPU; see moorage info");
}

void LocalBackend::check_image(const SandboxSpec& spec) {
  if (spec.image == "host") return;
  throw Error(Code::unsupported, "this backend does not have image \"" + spec.image + "\"",
              "use image host, or backend docker with an image of its engine");
}

// The sandbox of that name, if it already exists and answers.
std::optional<SandboxStatus> LocalBackend::adopt(const SandboxSpec& spec, SandboxCgroup& group) {
  const SandboxStatus status = inspect(spec.name);
  if (status.state == SandboxState::frozen) {
    throw Error(Code::conflict, spec.name + " is frozen", "thaw it first");
  }
  if (status.state != SandboxState::running) return std::nullopt;
  const auto label = read_label(group);
  if (!label) return std::nullopt;
  EnvdClient client(Endpoint{label->directory + "/" + kWardenSocket});
  if (!client.healthy(kHealthPatience)) {
    throw Error(Code::conflict, spec.name + " is running but does not answer", "destroy it first");
  }
  return status;
}

SandboxStatus LocalBackend::start(const SandboxSpec& spec) {
  check(spec);
  const auto guard = starting_.lock(spec.name, "start", spec.deadline);
  SandboxCgroup cgroup = group(spec.name);
  if (auto running = adopt(spec, cgroup)) return *running;
  const auto until = Clock::now() + spec.deadline;
  // Remains of an interrupted start or a dead warden.
  if (cgroup.exists()) cgroup.kill_and_remove(spec.deadline);
  try {
    cgroup.create(spec.limits);
    cgroup.weigh_cpu(options_.cpu_weight);
    if (options_.disk_rate_bytes > 0) {
      cgroup.limit_disk(disk_of(options_.images_directory), options_.disk_rate_bytes);
    }
    LaunchPlan launch_plan;
    launch_plan.program = launch_copy_;
    launch_plan.warden = warden_copy_;
    launch_plan.cgroup = cgroup.unified_path();
    launch_plan.owner_id = spec.first_host_id;
    if (!known_capabilities().remote) show_limits(spec, cgroup, launch_plan);
    plan(spec, cgroup, launch_plan);
    SandboxSpec rest = spec;
    rest.deadline = std::chrono::duration_cast<milliseconds>(until - Clock::now());
    const Launched launched = launch(rest, launch_plan);
    cgroup.open_commands();
    write_label(cgroup, {launched.init, spec.directory, launched.warden.protocols,
                         launched.warden.release});
  } catch (Error& error) {
    cgroup.kill_and_remove(kDestroyDeadline);
    forget(spec.name);
    unlink((spec.directory + "/" + kWardenSocket).c_str());
    throw error.add_context("start " + spec.name);
  }
  return inspect(spec.name);
}

void LocalBackend::stop(const std::string& name, milliseconds grace) {
  SandboxCgroup cgroup = group(name);
  const SandboxStatus status = inspect(name);
  if (status.state == SandboxState::frozen) cgroup.thaw(kFreezeDeadline);
  if (status.state == SandboxState::running || status.state == SandboxState::frozen) {
    try {
      EnvdClient(endpoint(name)).shut_down(grace);
      const auto until = Clock::now() + grace + milliseconds(500);
      while (base::process_alive(status.init) && Clock::now() < until) {
        std::this_thread::sleep_for(milliseconds(1));
      }
    } catch (const Error&) {
      // The warden cannot respond; the next step does not need it.
    }
  }
  destroy(name);
}

void LocalBackend::freeze(const std::string& name) {
  const SandboxState state = inspect(name).state;
  if (state == SandboxState::absent) throw Error(Code::not_found, "there is no sandbox " + name);
  if (state == SandboxState::stopped) throw Error(Code::conflict, name + " is not running");
  group(name).freeze(kFreezeDeadline);
}

void LocalBackend::thaw(const std::string& name) {
  SandboxCgroup cgroup = group(name);
  if (!cgroup.exists()) throw Error(Code::not_found, "there is no sandbox " + name);
  cgroup.thaw(kFreezeDeadline);
}

void LocalBackend::destroy(const std::string& name) {
  SandboxCgroup cgroup = group(name);
  const auto label = read_label(cgroup);
  cgroup.kill_and_remove(kDestroyDeadline);
  forget(name);
  if (label) unlink((label->directory + "/" + kWardenSocket).c_str());
}

SandboxStatus LocalBackend::inspect(const std::string& name) {
  const SandboxCgroup cgroup = group(name);
  SandboxStatus status;
  if (!cgroup.exists()) return status;
  const auto label = read_label(cgroup);
  if (!label || !base::process_alive(label->init)) {
    status.state = SandboxState::stopped;
    return status;
  }
  status.state = cgroup.frozen() ? SandboxState::frozen : SandboxState::running;
  status.init = label->init;
  status.release = label->release;
  cgroup.measure(status);
  return status;
}

std::vector<pid_t> LocalBackend::members(const std::string& name) { return group(name).members(); }

std::vector<std::string> LocalBackend::list() {
  return sandbox_cgroups(hierarchies(), options_.name_prefix);
}

Endpoint LocalBackend::endpoint(const std::string& name) {
  const auto label = read_label(group(name));
  if (!label) throw Error(Code::not_found, "there is no sandbox " + name);
  return Endpoint{label->directory + "/" + kWardenSocket};
}

void LocalBackend::start_egress(const std::string& name, int control) {
  const SandboxCgroup cgroup = group(name);
  cgroup.add_part(kEgressPart);
  std::vector<std::string> argv{egress_copy_, "--control-fd", std::to_string(control), "--uid",
                                std::to_string(options_.egress_uid)};
  for (const std::string& file : cgroup.join_files(kEgressPart)) {
    argv.emplace_back("--join");
    argv.push_back(file);
  }
  base::ProcessOptions options;
  options.inherit_fds = {control};
  options.deadline = kEgressDeadline;
  const base::ProcessResult result = base::run_process(argv, options);
  if (!result.ok()) throw Error(Code::unavailable, "moorage-egress did not start: " + result.error);
}

void LocalBackend::kill_egress(const std::string& name) {
  const std::string file = group(name).unified_path() + "/" + kEgressPart + "/cgroup.kill";
  if (base::path_exists(file)) write_cgroup_file(file, "1");
}

std::unique_ptr<ExecGroup> LocalBackend::exec_group(const std::string& name,
                                                    const std::string& exec_name) {
  return group(name).exec_group(exec_name);
}

}  // namespace moorage::backends
