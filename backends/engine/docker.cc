// Backend `docker`: a container that an engine makes over its API (Docker, or Podman's compatible
// socket). The engine only starts and removes it. The warden is process 1, and moves to the
// sandbox's own control group, which is the truth about it and holds its limits, whatever cgroup
// driver the engine uses. So commands neither wait for the engine nor depend on it running.
//
// Ids: with userns-remap an engine gives all containers one range, with a root of their own;
// apart from that they are as on `lxc` (isolation `userns`). Without it there is no user namespace:
// the whole sandbox, including the warden, runs as one id of the sandbox's own range, without
// capabilities, root or sudo (isolation `container`).
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <optional>

#include "backends/cgroups/device_rules.h"
#include "backends/engine/container_cgroups.h"
#include "backends/engine/container_files.h"
#include "backends/engine/container_users.h"
#include "backends/engine/docker_image.h"
#include "backends/engine/engine_client.h"
#include "backends/engine/engine_seccomp.h"
#include "backends/launch/root_capabilities.h"
#include "backends/local_backend.h"
#include "backends/probe.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"

namespace moorage::backends {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;

constexpr const char* kStoreLabel = "moorage.store";
constexpr std::chrono::seconds kTrusted{2};      // without polling the engine again
constexpr std::chrono::minutes kRemembered{10};  // age limit of its last capabilities
constexpr milliseconds kAskDeadline{5'000};
constexpr milliseconds kImageDeadline{60'000};
constexpr milliseconds kInfoDeadline{20'000};  // Podman runs programs for it

constexpr const char* kWardenInside = "/.moorage/warden";
constexpr const char* kBootstrapInside = "/.moorage/bootstrap";

json::object bound(const std::string& source, const char* target, bool read_only) {
  return {{"Type", "bind"}, {"Source", source}, {"Target", target}, {"ReadOnly", read_only}};
}

// External mounts need directories, which an image may lack.
json::object places_of(const SandboxSpec& spec, const std::vector<std::string>& volumes) {
  constexpr const char* kOptions = "size=4k,mode=755";
  json::object places;
  // Charged to the commands' memory, as /tmp is: our limits do not cover the engine's disk.
  for (const std::string& volume : volumes)
    places[volume] = "mode=1777,size=" + std::to_string(spec.limits.memory_bytes / 2);
  for (const Mount& mount : spec.mounts) places[mount.target] = kOptions;
  for (const char* target : {"/tmp", "/var/tmp", "/run", "/root"}) places[target] = kOptions;
  return places;
}

// The same for every container. moorage-launch masks more of /proc.
json::object fixed_settings() {
  return {{"NetworkMode", "none"},
          {"IpcMode", "private"},
          {"CgroupnsMode", "private"},
          {"ReadonlyRootfs", true},
          {"Privileged", false},
          {"CapDrop", json::array{"ALL"}},
          {"MaskedPaths", json::array{}},
          {"ReadonlyPaths", json::array{"/proc/sys"}},
          {"LogConfig", json::object{{"Type", "none"}}},
          {"RestartPolicy", json::object{{"Name", "no"}}}};
}

// The isolation of an engine's runtime, from its name and program: it reports nothing else.
Isolation isolation_of_runtime(const std::string& name, const std::string& program, bool userns) {
  const auto either_has = [&](const char* word) {
    return name.find(word) != std::string::npos || program.find(word) != std::string::npos;
  };
  if (either_has("kata")) return Isolation::vm;
  if (either_has("runsc")) return Isolation::gvisor;
  return userns ? Isolation::userns : Isolation::container;
}

class DockerBackend : public LocalBackend {
 public:
  explicit DockerBackend(const BackendOptions& options)
      : LocalBackend(options),
        engine_(options.docker_socket),
        host_image_(engine_, options.images_directory),
        profile_(engine_seccomp_profile(options.nested_namespaces)) {}

  std::vector<std::string> list() override;

 protected:
  void probe(const CgroupHierarchies& hierarchies, Capabilities& can) override;
  bool holds(const Capabilities& known) override;
  void check_image(const SandboxSpec& spec) override;
  std::optional<ImageIdentity> find_image(const std::string& image) override;
  void plan(const SandboxSpec& spec, const SandboxCgroup& group, LaunchPlan& plan) override;
  void forget(const std::string& name) override;

 private:
  // The user ids of process 1.
  struct Ids {
    uint32_t user = 0;  // inside; 0: the engine maps ids, and it is root
    uint32_t first_host_id = 0;
  };
  Ids ids_of(const SandboxSpec& spec);
  std::string create_body(const SandboxSpec& spec, const std::string& warden);
  pid_t start_container(const SandboxSpec& spec, const std::string& warden, milliseconds deadline);
  LaunchPlan::Container take_over(const SandboxSpec& spec, const SandboxCgroup& group,
                                  const base::ProcessIdentity& init);

  std::string profile_file() const { return options_.images_directory + "/seccomp.json"; }

  const EngineClient engine_;
  DockerImage host_image_;
  const std::string profile_;
  std::optional<DeviceRules> device_rules_;
  EngineInfo info_;  // from the engine's last answer; used by probe() only
  std::atomic<bool> is_podman_{false};
  std::atomic<bool> is_another_{false};  // it was restarted with other settings
  std::optional<Error> no_answer_;       // to the last query
  std::chrono::steady_clock::time_point asked_{};
  std::chrono::steady_clock::time_point probed_{};
};

void DockerBackend::probe(const CgroupHierarchies&, Capabilities& can) {
  is_another_ = false;
  can.network_none = true;
  can.network_rules = true;
  // A mount namespace inside would keep the old mounts without anyone noticing.
  can.restack = !options_.nested_namespaces;
  if (!no_answer_) {
    try {
      engine_.ping(kAskDeadline);  // do not wait for one that hangs
      info_ = engine_.info(kInfoDeadline);
      is_podman_ = info_.is_podman;
    } catch (const Error& error) {
      no_answer_ = error;  // running sandboxes continue unchanged
    }
  }
  asked_ = probed_ = std::chrono::steady_clock::now();  // other waiters need not ask again
  can.first_host_id = info_.first_host_id;
  can.root = can.sudo = info_.first_host_id.has_value();
  for (const auto& [name, program] : info_.runtimes) {
    can.runtimes[name] = isolation_of_runtime(name, program, can.root);
  }
  can.isolation = can.root ? Isolation::userns : Isolation::container;
  if (no_answer_) throw Error(*no_answer_);
  can.isolation = options_.docker_runtime.empty()
                      ? isolation_of_runtime(info_.default_runtime, "", can.root)
                      : isolation_of(can, options_.docker_runtime);
  if (!info_.seccomp) {
    throw Error(Code::unsupported, "this container engine cannot filter system calls",
                "use one built with seccomp");
  }
  for (const Check& check : check_engine_host(options_.images_directory)) {
    if (!check.ok) throw Error(Code::unsupported, check.text, check.hint);
  }
  if (!device_rules_) device_rules_.emplace();
  base::write_file(profile_file(), profile_, 0600);
  host_image_.ensure(kImageDeadline);  // not in the first start
}

bool DockerBackend::holds(const Capabilities& known) {
  using std::chrono::steady_clock;
  no_answer_.reset();
  if (is_another_ || steady_clock::now() - probed_ > kRemembered) return false;
  if (steady_clock::now() - asked_ < kTrusted) return true;
  try {
    engine_.ping(kAskDeadline);
  } catch (const Error& error) {
    no_answer_ = error;
  }
  asked_ = steady_clock::now();
  return known.usable == !no_answer_;
}

void DockerBackend::check_image(const SandboxSpec& spec) {
  if (spec.image == "host" || engine_.has_image(spec.image, kAskDeadline)) return;
  // Does not list the existing images: they are for users of the engine.
  throw Error(Code::not_found, "the engine has no image '" + spec.image + "'",
              "run docker pull or docker load on this host (docker images lists its images), or "
              "use image host");
}

std::optional<ImageIdentity> DockerBackend::find_image(const std::string& image) {
  if (image == "host") return ImageIdentity{};
  return engine_.find_image(image, kAskDeadline);
}

DockerBackend::Ids DockerBackend::ids_of(const SandboxSpec& spec) {
  if (const auto first = capabilities().first_host_id) return {0, *first};
  return {spec.first_host_id + kInsideUser, spec.first_host_id};
}

std::string DockerBackend::create_body(const SandboxSpec& spec, const std::string& warden) {
  const Ids ids = ids_of(spec);
  json::array command{"--bootstrap", json::string(kBootstrapInside)};
  if (ids.user != 0) {
    command.emplace_back("--user-base");
    command.emplace_back(std::to_string(ids.first_host_id));
  }
  json::object labels{{kStoreLabel, options_.name_prefix}, {"moorage.sandbox", spec.name}};
  for (const auto& [key, value] : spec.labels) labels["moorage." + key] = value;
  // Podman expects a file, Docker the text in the request.
  json::array security{"seccomp=" + (is_podman_ ? profile_file() : profile_)};
  if (ids.user != 0 || !spec.sudo) security.emplace_back("no-new-privileges");
  // The engine's AppArmor profile, where active, forbids mounts.
  if (options_.nested_namespaces) security.emplace_back("apparmor=unconfined");
  json::array capabilities;
  if (ids.user == 0) {
    for (const char* name : launch::kRootCapabilities) capabilities.emplace_back(name);
  }
  json::object host = fixed_settings();
  host["CapAdd"] = std::move(capabilities);
  host["SecurityOpt"] = std::move(security);
  host["Mounts"] =
      json::array{bound(warden, kWardenInside, true),
                  bound(spec.directory + "/" + kBootstrapSocket, kBootstrapInside, false)};
  host["Tmpfs"] = places_of(spec, engine_.image_volumes(spec.image, kAskDeadline));
  host["ShmSize"] =
      spec.limits.memory_bytes / 2;  // as on other backends: df stays accurate, and pages count
  const std::string& runtime = spec.runtime.empty() ? options_.docker_runtime : spec.runtime;
  if (!runtime.empty()) host["Runtime"] = runtime;
  return json::serialize(json::object{
      {"Image", spec.image},
      {"Hostname", "sandbox"},
      {"User", std::to_string(ids.user) + ":" + std::to_string(ids.user)},
      {"Entrypoint", json::array{json::string(kWardenInside)}},
      {"Cmd", std::move(command)},
      {"WorkingDir", "/"},
      {"Env", json::array{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
      // Only lo exists either way; this is three times as fast as the engine's "none" alone.
      {"NetworkDisabled", true},
      {"Healthcheck", json::object{{"Test", json::array{"NONE"}}}},
      {"Labels", std::move(labels)},
      {"HostConfig", std::move(host)}});
}

void DockerBackend::plan(const SandboxSpec& spec, const SandboxCgroup& group, LaunchPlan& plan) {
  const Ids ids = ids_of(spec);
  plan.mode = "furnish";
  plan.join_files = group.join_files("launch");
  plan.nested_namespaces = options_.nested_namespaces;
  plan.maps_ids = ids.user == 0;
  plan.host_usr = spec.image == "host";
  plan.owner_id = ids.first_host_id + (ids.user == 0 ? 0 : kInsideUser);
  group.add_part("warden");
  device_rules_->apply(group.unified_path());
  plan.start_container = [this, &spec, warden = plan.warden](milliseconds deadline) {
    return start_container(spec, warden, deadline);
  };
  plan.take_over = [this, &spec, &group](const auto& init) { return take_over(spec, group, init); };
}

pid_t DockerBackend::start_container(const SandboxSpec& spec, const std::string& warden,
                                     milliseconds deadline) {
  SandboxSpec named = spec;
  if (spec.image == "host") named.image = host_image_.ensure(deadline);
  const std::string body = create_body(named, warden);
  try {
    engine_.create(spec.name, body, deadline);
  } catch (const Error& error) {
    if (error.code() != Code::already_exists) throw;
    engine_.remove(spec.name, deadline);  // from an interrupted start
    engine_.create(spec.name, body, deadline);
  }
  engine_.start(spec.name, deadline);
  return engine_.init_pid(spec.name, deadline);
}

LaunchPlan::Container DockerBackend::take_over(const SandboxSpec& spec, const SandboxCgroup& group,
                                               const base::ProcessIdentity& init) {
  const Ids ids = ids_of(spec);
  const uint32_t root = first_mapped_id(init);
  if (root != (ids.user == 0 ? ids.first_host_id : 0)) {
    is_another_ = true;
    throw Error(Code::unsupported,
                "the container's ids begin with host id " + std::to_string(root) +
                    ", but the engine reported another value",
                "try again: the engine was probably restarted with another --userns-remap");
  }
  ContainerCgroups cgroups = container_cgroups(group, init);
  for (const std::string& file : group.join_files("warden")) {
    base::write_all(base::open_file(file, O_WRONLY).get(), std::to_string(init.pid));
  }
  LaunchPlan::Files files =
      write_users(init, ids.user == 0 ? kInsideUser : ids.user, spec.directory);
  if (!spec.certificates.empty()) {
    for (auto& file : write_trust(init, spec.certificates, spec.directory))
      files.push_back(std::move(file));
  }
  return {init, std::move(files), std::move(cgroups.shown), std::move(cgroups.links)};
}

void DockerBackend::forget(const std::string& name) {
  try {
    engine_.remove(name, kAskDeadline);
  } catch (const Error& error) {
    // Its processes are gone. list() finds the engine's record once the engine answers.
    base::log(base::LogLevel::warning, "docker.not_removed",
              {{"name", name}, {"error", error.message()}});
  }
}

std::vector<std::string> DockerBackend::list() {
  std::vector<std::string> names = LocalBackend::list();
  if (!capabilities().usable) return names;
  for (std::string& name :
       engine_.containers(std::string(kStoreLabel) + "=" + options_.name_prefix, kAskDeadline)) {
    if (name.starts_with(options_.name_prefix)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

std::unique_ptr<Backend> make_docker_backend(const BackendOptions& options) {
  return std::make_unique<DockerBackend>(options);
}

}  // namespace moorage::backends
