#include "backends/remote/remote_backend.h"

#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>

#include "backends/envd_client.h"
#include "backends/remote/link_client.h"
#include "backends/remote/link_program.h"
#include "backends/trust.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/os/mount.h"
#include "base/os/namespaces.h"
#include "base/wire/command_mark.h"
#include "base/wire/link_config.h"

namespace moorage::backends {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Of moorage-link here: a few processes of some megabytes.
constexpr Limits kLinkLimits{.memory_bytes = 1ULL << 30, .cpus = 2, .pids = 256};
constexpr milliseconds kStatusDeadline{5'000};
constexpr milliseconds kRemoveDeadline{10'000};
// For a sandbox that goes on there: its new keeper keeps trying.
constexpr milliseconds kReconnectDeadline{5'000};
// After the grace of the commands: their last changes come here.
constexpr milliseconds kLastSyncDeadline{120'000};
constexpr const char* kWorkspaceLabel = "workspace";  // of SandboxSpec: its id
constexpr const char* kLayersInside = "/.moorage/layers";

// The group of a command there. Nothing of it is in a control group here.
class RemoteExecGroup : public ExecGroup {
 public:
  RemoteExecGroup(PendingKills& kills, std::string sandbox, std::string tag)
      : kills_(kills), sandbox_(std::move(sandbox)), tag_(std::move(tag)) {}
  std::vector<Fd> join_fds() override { return {}; }
  Fd kill_fd() override { return {}; }
  void kill() override { kills_.add(sandbox_, tag_); }
  uint64_t kernel_id() override { return base::command_mark(tag_); }
  uint64_t oom_kills() override { return 0; }
  uint64_t refused_forks() override { return 0; }
  bool empty() override { return true; }
  std::vector<pid_t> members(size_t) override { return {}; }
  uint64_t processes() override { return 0; }
  void remove() override {}

 private:
  PendingKills& kills_;
  const std::string sandbox_;
  const std::string tag_;
};

std::string layer_place(size_t number, const char* part) {
  return std::string(kLayersInside) + "/" + std::to_string(number) + "/" + part;
}

// Attaches the layers in the keeper's mount namespace; the destructor detaches them again.
class AttachedLayers {
 public:
  AttachedLayers(base::ProcessIdentity keeper, const std::vector<FileLayer>& layers)
      : keeper_(keeper) {
    base::in_mount_namespace(keeper_, [&] {
      for (size_t i = 0; i < layers.size(); ++i) {
        base::LinkLayer& paths = paths_.emplace_back();
        paths.tree = attach(layers[i].tree, layer_place(i, "tree"));
        paths.home = attach(layers[i].home, layer_place(i, "home"));
      }
    });
  }
  ~AttachedLayers() {
    try {
      base::in_mount_namespace(keeper_, [&] {
        for (const std::string& place : attached_) umount2(place.c_str(), MNT_DETACH);
      });
    } catch (const Error&) {
      // The keeper has ended, and its namespace with it.
    }
  }
  AttachedLayers(AttachedLayers&&) = delete;
  const std::vector<base::LinkLayer>& paths() const { return paths_; }

 private:
  std::string attach(int mount, const std::string& place) {
    if (mount < 0) return {};
    base::make_directories(place, 0700);
    base::attach_mount(mount, place);
    attached_.push_back(place);
    return place;
  }

  const base::ProcessIdentity keeper_;
  std::vector<std::string> attached_;
  std::vector<base::LinkLayer> paths_;
};

// A sandbox with this directory runs there already, or was lost there.
bool has_begun(const std::string& directory) {
  return base::path_exists(directory + "/" + base::kLinkBegun);
}

void forget_fate(const std::string& directory) {
  for (const char* name : {base::kLinkBegun, base::kLinkGone})
    unlink((directory + "/" + name).c_str());
}

std::vector<PlaceOptions> places_of(const RemoteOptions& options, const std::string& driver) {
  std::vector<PlaceOptions> places;
  if (driver == "ssh") {
    for (const SshHost& host : options.ssh_hosts) places.push_back({host.name, host.max_sandboxes});
  } else if (const auto& account = driver == "e2b" ? options.e2b : options.daytona) {
    places.push_back({driver, account->max_sandboxes, base::sha256_hex(account->settings)});
  }
  return places;
}

}  // namespace

RemoteBackend::RemoteBackend(const BackendOptions& options, std::string driver)
    : LocalBackend(options),
      driver_(std::move(driver)),
      places_(options.remote.notes_directory, driver_, places_of(options.remote, driver_)),
      kills_([this](const std::string& sandbox, const std::string& tag) {
        try {
          EnvdClient(endpoint(sandbox)).kill_tree(tag);
        } catch (const Error& error) {
          if (error.code() != Code::not_found) throw;  // not_found: it has ended
        }
      }) {}

// Also while it cannot be used: its sandboxes may run.
Capabilities RemoteBackend::capabilities() { return with_machines(LocalBackend::capabilities()); }

Capabilities RemoteBackend::known_capabilities() {
  return with_machines(LocalBackend::known_capabilities());
}

// Root and limits depend on the login there and on the machine: known once a sandbox ran there.
// Until then no limit is promised; root is not excluded, and the warden there refuses it where it
// must.
Capabilities RemoteBackend::with_machines(Capabilities can) const {
  can.remote = true;
  const std::vector<PlaceUse> uses = places_.uses();
  const auto holds = [&](const std::string& limit) {
    return !uses.empty() && std::all_of(uses.begin(), uses.end(), [&](const PlaceUse& place) {
      return std::find(place.limits.begin(), place.limits.end(), limit) != place.limits.end();
    });
  };
  can.limits_memory = holds("memory");
  can.limits_pids = holds("pids");
  can.limits_cpu = holds("cpus");
  can.root = std::any_of(uses.begin(), uses.end(), [](const PlaceUse& place) {
    return place.overlay.empty() || place.root_inside;
  });
  return can;
}

void RemoteBackend::probe(const CgroupHierarchies&, Capabilities& can) {
  // Otherwise a sandbox is not started: on a machine of others by outpost, on a rented one by link,
  // if rules allow it hosts. The provider cuts a rented one off, whatever it can do itself.
  can.network_none = true;
  can.network_rules = true;
  can.isolation = isolation();
  can.restack = true;
  can.freeze = false;
  for (const PlaceUse& place : places_.uses()) can.runtimes[place.name] = can.isolation;
  if (can.runtimes.empty()) {
    throw Error(Code::unsupported, "no machines are configured for backend " + driver_,
                "add some to backends." + driver_ + " in the configuration");
  }
  for (const std::string& program :
       {options_.remote.link_program, options_.remote.outpost_program}) {
    if (access(program.c_str(), X_OK) != 0)
      throw Error(Code::unsupported, "the program " + program + " is missing");
  }
  find_key();
  link_copy_ = copy_program(options_.remote.link_program, options_.images_directory, 0111);
  // Readable, unlike the copies that run here: they are sent.
  const std::string sent = options_.images_directory + "/remote";
  outpost_copy_ = copy_program(options_.remote.outpost_program, sent, 0400);
  warden_copy_ = copy_program(options_.warden_program, sent, 0400);
}

void RemoteBackend::plan(const SandboxSpec& spec, const SandboxCgroup& group, LaunchPlan& plan) {
  plan.mode = "link";
  plan.warden = link_copy_;
  plan.link_config = spec.directory + "/" + base::kLinkConfig;
  for (const auto& [name, value] : ssh_environment())
    plan.environment.push_back(name + "=" + value);
  group.add_part("warden");
  plan.join_files = group.join_files("warden");
}

const ProviderOptions* RemoteBackend::account() const {
  if (driver_ == "ssh") return nullptr;
  const auto& found = driver_ == "e2b" ? options_.remote.e2b : options_.remote.daytona;
  return found ? &*found : nullptr;
}

// On a host, what the sandbox has there. Of a rented machine, which is its own, what the provider
// is known to make; Daytona's are containers.
Isolation RemoteBackend::isolation() const {
  const ProviderOptions* rented = account();
  if (!rented) return Isolation::userns;
  return rented->machines_are_vms ? Isolation::vm : Isolation::container;
}

// The machine of a sandbox, for moorage-link.
base::LinkConfig RemoteBackend::machine(const MachineNote& note) const {
  base::LinkConfig config;
  config.name = note.sandbox;
  config.generation = note.generation;
  config.driver = driver_;
  config.place = note.place;
  config.outpost = outpost_copy_;
  config.warden = warden_copy_;
  config.sync_interval_s = options_.remote.sync_interval_s;
  config.start_deadline_s = options_.remote.start_deadline_s;
  config.machine_is_ours = driver_ != "ssh";
  config.machine = note.machine;
  config.machine_generation = note.machine_generation;
  if (const ProviderOptions* rented = account()) {
    config.settings = rented->settings;
    config.key = key_source();
  }
  for (const SshHost& host : options_.remote.ssh_hosts) {
    if (driver_ != "ssh" || host.name != note.place) continue;
    config.settings = base::ssh_settings_text(
        {host.name, host.destination, options_.remote.ssh_config_file, host.directory});
  }
  if (config.settings.empty()) {
    throw Error(Code::not_found, note.place + " is no longer in the configuration",
                "add it to backends." + driver_ + " again");
  }
  return config;
}

std::string RemoteBackend::key_source() const {
  return options_.remote.notes_directory + "/keys/" + driver_;
}

void RemoteBackend::find_key() {
  const ProviderOptions* rented = account();
  if (!rented) return;
  const base::LinkKey key = rented->credential.empty()
                                ? base::LinkKey{base::LinkKey::Source::file, rented->key_file}
                                : options_.remote.credential_key(rented->credential);
  base::make_directories(options_.remote.notes_directory + "/keys", 0700);
  base::write_file_durable(key_source(), base::link_key_text(key));
}

SandboxStatus RemoteBackend::start(const SandboxSpec& spec) {
  check(spec);
  const SandboxState before = inspect(spec.name).state;  // refuses a name of another store
  // Without a note nothing of an earlier sandbox with this directory is left there.
  if (!places_.find(spec.name)) forget_fate(spec.directory);
  const auto workspace = spec.labels.find(kWorkspaceLabel);
  const MachineNote note =
      places_.take(spec.name, spec.remote.generation, spec.runtime,
                   workspace == spec.labels.end() ? std::string() : workspace->second);
  if (has_begun(spec.directory)) return start_keeper(spec, note);
  try {
    const SandboxStatus status = start_keeper(spec, note);
    LinkClient(endpoint(spec.name)).connect(seconds(options_.remote.start_deadline_s));
    places_.succeeded(note.place, base::system_clock().wall_ms());
    return status;
  } catch (Error& error) {
    places_.failed(note.place, error.message());
    if (before == SandboxState::absent || before == SandboxState::stopped) {
      LocalBackend::destroy(spec.name);
      remove_machine(note, kRemoveDeadline);
    }
    throw error.add_context("on " + note.place);
  }
}

SandboxStatus RemoteBackend::start_keeper(const SandboxSpec& spec, const MachineNote& note) {
  base::LinkConfig config = machine(note);
  config.directory = spec.directory;
  config.first_id = spec.first_host_id;
  config.memory_bytes = spec.limits.memory_bytes;
  config.pids = spec.limits.pids;
  config.cpus = spec.limits.cpus;
  config.provider_rules = spec.provider_rules;
  if (const ProviderOptions* rented = account(); rented && rented->has_volume)
    config.kept_trees = options_.remote.notes_directory + "/volumes/" + driver_;
  const RemoteFiles& files = spec.remote;
  if (!files.base_key.empty()) config.base = {files.base_key, kBaseInside};
  if (!files.objects_key.empty()) config.objects = {files.objects_key, kObjectsInside};
  if (!spec.certificates.empty())
    config.certificates = {certificates_key(spec.certificates), kCertificatesInside};
  base::write_file(spec.directory + "/" + base::kLinkConfig, base::link_config_text(config));
  SandboxSpec keeper = spec;
  keeper.limits = kLinkLimits;
  const SandboxStatus status = LocalBackend::start(keeper);
  if (has_begun(spec.directory)) {
    try {
      LinkClient(endpoint(spec.name)).connect(kReconnectDeadline);
    } catch (const Error& error) {  // it goes on trying, or ends with the reason
      places_.failed(note.place, error.message());
    }
  }
  return status;
}

void RemoteBackend::attach(const std::string& name, const std::vector<FileLayer>& layers) {
  const seconds patience(options_.remote.start_deadline_s);
  const auto guard = attaching_.lock(name, "start", patience);
  const SandboxStatus status = inspect(name);
  if (status.init.pid == 0) throw Error(Code::unavailable, "the link of " + name + " has ended");
  // Its files there are newer than the layers.
  const std::string socket = endpoint(name).unix_socket;
  if (has_begun(socket.substr(0, socket.rfind('/')))) return;
  const AttachedLayers attached(status.init, layers);
  LinkClient(endpoint(name)).begin(attached.paths(), patience);
  learn(name);
}

// Commands have not run there yet.
void RemoteBackend::learn(const std::string& name) {
  const base::LinkStatus there = LinkClient(endpoint(name)).status(kStatusDeadline);
  if (const auto note = places_.find(name)) {
    places_.learned(note->place, there);
    if (!note->machine.empty()) places_.resumed(note->place, there.restored);
  }
  if (driver_ != "ssh") return;
  if (there.overlay != "none" && there.pid_namespace && there.net_namespace) return;
  throw Error(Code::unsupported,
              "the machine cannot give a sandbox namespaces of its own for files, processes and "
              "network",
              "allow unprivileged user namespaces there, or log in there as root");
}

void RemoteBackend::stop(const std::string& name, milliseconds grace) {
  if (inspect(name).state == SandboxState::frozen) thaw(name);
  if (inspect(name).state == SandboxState::running) {
    bool kept = false;
    try {
      kept = end_there(name, grace);
    } catch (Error& error) {
      throw error.add_context("its last changes could not be fetched");
    }
    if (kept)
      places_.keep(name);
    else
      places_.release(name);  // nothing is left there
  }
  destroy(name);
}

bool RemoteBackend::pauses() const {
  const ProviderOptions* rented = account();
  boost::system::error_code invalid;
  const auto settings = boost::json::parse(rented ? rented->settings : "{}", invalid);
  if (invalid || !settings.is_object()) return false;
  const auto* on_stop = settings.get_object().if_contains("on_stop");
  return on_stop && on_stop->is_string() && on_stop->get_string() == "pause";
}

bool RemoteBackend::end_there(const std::string& name, milliseconds grace) {
  const auto note = places_.find(name);
  const bool keep = note && pauses() && places_.may_keep(name);
  const auto ended = LinkClient(endpoint(name)).shut_down({grace, keep}, kLastSyncDeadline);
  if (keep) places_.not_paused(note->place, ended.why);
  return keep && ended.kept;
}

void RemoteBackend::destroy(const std::string& name) {
  kills_.forget(name);
  bool answers = true;
  if (inspect(name).state == SandboxState::running) {
    try {
      answers = LinkClient(endpoint(name)).status(kStatusDeadline).connected;
    } catch (const Error&) {
      answers = false;
    }
  }
  LocalBackend::destroy(name);
  const auto note = places_.find(name);
  // A machine that cannot be reached now keeps its note, and is removed later.
  if (note && !note->kept && answers) remove_machine(*note, kRemoveDeadline);
}

bool RemoteBackend::remove_machine(const MachineNote& note, std::chrono::milliseconds patience) {
  try {
    remove_there(note, patience);
    return true;
  } catch (const Error& error) {
    base::log(base::LogLevel::warning, "sandbox.not_removed_there",
              {{"name", note.sandbox}, {"place", note.place}, {"error", error.message()}});
    return false;
  }
}

std::unique_ptr<ExecGroup> RemoteBackend::exec_group(const std::string& name,
                                                     const std::string& exec_name) {
  return std::make_unique<RemoteExecGroup>(kills_, name, exec_name);
}

std::unique_ptr<Backend> make_ssh_backend(const BackendOptions& options) {
  return std::make_unique<RemoteBackend>(options, "ssh");
}

std::unique_ptr<Backend> make_e2b_backend(const BackendOptions& options) {
  return std::make_unique<RemoteBackend>(options, "e2b");
}

std::unique_ptr<Backend> make_daytona_backend(const BackendOptions& options) {
  return std::make_unique<RemoteBackend>(options, "daytona");
}

}  // namespace moorage::backends
