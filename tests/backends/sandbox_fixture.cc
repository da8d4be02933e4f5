#include "sandbox_fixture.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <map>

#include "backends/remote/link_client.h"
#include "base/error.h"
#include "base/os/files.h"
#include "base/os/mount.h"
#include "fake_backend.h"
#include "incoming.h"
#include "results.h"

namespace moorage::tests {
namespace {

constexpr uint32_t kPoolFirstId = 1'000'000'000;
constexpr uint32_t kIdsPerSandbox = 65536;
constexpr uint32_t kUser = 1000;

std::string make_store() {
  const char* top = std::getenv("TMPDIR");
  std::string pattern = std::string(top ? top : "/tmp") + "/moorage-backends.XXXXXX";
  if (!mkdtemp(pattern.data())) base::throw_errno("create a directory for the test");
  return pattern;
}

// A directory of the inside user, mapped to the sandbox's ids.
base::Fd idmapped_mount(const std::string& path, uint32_t first_host_id) {
  base::make_directories(path, 0755);
  base::check(chown(path.c_str(), kUser, kUser), "set the owner of " + path);
  base::Fd mount = base::clone_mount(path);
  base::MountAttributes attributes;
  attributes.nosuid = true;
  attributes.nodev = true;
  base::set_mount_attributes(mount.get(), attributes);
  base::Fd map = base::make_user_namespace({{0, first_host_id, kIdsPerSandbox}});
  base::set_mount_idmap(mount.get(), map.get());
  return mount;
}

// As daemon/settings.cc makes them of the configuration.
void set_provider(backends::RemoteOptions& options, const Engine& engine) {
  boost::json::object settings{{"internet", false}};
  auto& provider = engine.backend == "e2b" ? options.e2b : options.daytona;
  if (engine.backend == "e2b") {
    settings["api_url"] = settings["sandbox_url"] = engine.url;
  } else {
    settings["api_url"] = engine.url + "/api";
  }
  provider.emplace();
  provider->settings = boost::json::serialize(settings);
  provider->key_file = engine.key_file;
}

}  // namespace

SandboxFixture::SandboxFixture(const std::string& entry,
                               const std::function<void(backends::BackendOptions&)>& change)
    : engine_(find_engine(entry)), store_(make_store()) {
  results::begin(entry);
  // Like the real store, only root can enter it.
  options_.name_prefix = "moorage-test" + store_.substr(store_.rfind('.') + 1) + "-";
  for (char& c : options_.name_prefix) c = static_cast<char>(std::tolower(c));
  options_.images_directory = store_ + "/images";
  options_.launch_program = LAUNCH_PROGRAM;
  options_.warden_program = WARDEN_PROGRAM;
  options_.egress_program = EGRESS_PROGRAM;
  options_.allow_process = true;
  if (!engine_.socket.empty()) options_.docker_socket = engine_.socket;
  options_.remote.link_program = LINK_PROGRAM;
  options_.remote.outpost_program = OUTPOST_PROGRAM;
  options_.remote.notes_directory = store_ + "/remote";
  options_.remote.ssh_config_file = engine_.ssh_config;
  if (!engine_.ssh_config.empty()) {
    options_.remote.ssh_hosts = {{.name = "other",
                                  .destination = engine_.ssh_host,
                                  .directory = engine_.machines_directory}};
  }
  if (!engine_.url.empty()) set_provider(options_.remote, engine_);
  if (change) change(options_);
  base::make_directories(options_.images_directory);
  backend_ = another_backend();
}

SandboxFixture::~SandboxFixture() {
  try {
    if (backend_->capabilities().usable) {
      for (const std::string& name : backend_->list()) backend_->destroy(name);
    }
    base::remove_tree(store_);
  } catch (const base::Error& error) {
    std::cerr << "clean-up of " << store_ << ": " << error.what() << "\n";
  }
}

std::shared_ptr<backends::Backend> SandboxFixture::another_backend() const {
  if (engine_.backend == "fake") return std::make_shared<backends::FakeBackend>(options_);
  const auto registry = std::make_shared<backends::Registry>(options_);
  return {registry, &registry->get(engine_.backend)};
}

const backends::Capabilities& SandboxFixture::can() {
  if (!can_) can_ = backend_->capabilities();
  return *can_;
}

const backends::Capabilities& SandboxFixture::can_there() {
  if (!can().remote) return can();
  static std::map<std::string, backends::Capabilities> known;  // by entry
  const auto found = known.find(kind());
  if (found != known.end()) return found->second;
  constexpr int kTrial = 99;
  start(kTrial);
  const backends::Capabilities learned = backend_->capabilities();
  backend_->destroy(name(kTrial));
  return known[kind()] = learned;
}

Use SandboxFixture::use(int number) {
  const backends::SandboxStatus status = backend_->inspect(name(number));
  if (!can().remote) return {status.memory_bytes, status.processes};
  std::string& group = groups_[number];
  if (group.empty()) group = group_there(shell(number, "readlink /proc/self/ns/pid"));
  return use_of_group(group);
}

std::string SandboxFixture::workspace(int number) const {
  return store_ + "/ws_" + std::to_string(number) + "/tree";
}

std::string SandboxFixture::home(int number) const {
  return store_ + "/ws_" + std::to_string(number) + "/home";
}

base::Fd SandboxFixture::mount_of(const std::string& path, const backends::SandboxSpec& spec) {
  return idmapped_mount(path, spec.first_host_id);
}

backends::SandboxSpec SandboxFixture::spec(int number) {
  backends::SandboxSpec spec;
  spec.name = name(number);
  spec.directory = directory(number);
  spec.first_host_id =
      can().first_host_id.value_or(kPoolFirstId + static_cast<uint32_t>(number) * kIdsPerSandbox);
  spec.sudo = can().sudo;
  spec.limits.memory_bytes = 256 << 20;
  spec.limits.cpus = 2;
  spec.limits.pids = 64;
  base::make_directories(spec.directory);
  for (const auto& [path, target] :
       {std::pair(workspace(number), "/workspace"), std::pair(home(number), "/home/user")}) {
    mounts_.push_back(idmapped_mount(path, spec.first_host_id));
    spec.mounts.push_back({mounts_.back().get(), target});
  }
  return spec;
}

backends::SandboxStatus SandboxFixture::start(int number) {
  const size_t before = mounts_.size();
  const auto status = start(spec(number));
  mounts_.resize(before);
  return status;
}

backends::SandboxStatus SandboxFixture::start(const backends::SandboxSpec& spec) {
  const auto status = backend_->start(spec);
  if (!can_->remote) return status;
  const int number = std::stoi(spec.name.substr(spec.name.rfind('_') + 1));
  const base::Fd tree = idmapped_mount(workspace(number), spec.first_host_id);
  const base::Fd files = idmapped_mount(home(number), spec.first_host_id);
  backend_->attach(spec.name, {{.tree = tree.get(), .home = files.get()}});
  return status;
}

void SandboxFixture::fetch_files(int number) {
  if (!can().remote) return;
  const backends::Endpoint endpoint = backend_->endpoint(name(number));
  backends::LinkClient(endpoint).sync(patient(std::chrono::seconds(60)));
  apply_incoming(directory(number), workspace(number), home(number));
}

void SandboxFixture::send_files(int number, const std::vector<std::string>& paths) {
  if (!can().remote) return;
  const backends::Endpoint endpoint = backend_->endpoint(name(number));
  backends::LinkClient(endpoint).changed(paths, patient(std::chrono::seconds(60)));
}

RunningExec SandboxFixture::begin(int number, const Command& command) {
  const std::string tag = "ex_" + std::to_string(++execs_);
  return RunningExec(*backend_, name(number), store_ + "/" + tag, tag, command);
}

std::string SandboxFixture::program(int number, const std::string& path) {
  const std::string file = path.substr(path.rfind('/') + 1);
  const std::string place = workspace(number) + "/" + file;
  const std::string inside = "/workspace/" + file;
  if (base::path_exists(place)) return inside;
  base::write_file(place, base::read_file(path), 0755);
  send_files(number, {inside});
  return inside;
}

std::string SandboxFixture::shell(int number, const std::string& script, const std::string& user) {
  Command command;
  command.argv = {"/bin/sh", "-c", script};
  command.user = user;
  Outcome outcome = run(number, command);
  INFO(script << "\n" << outcome.output << outcome.text);
  REQUIRE(outcome.kind == "exited");
  REQUIRE(outcome.code == 0);
  while (outcome.output.ends_with('\n')) outcome.output.pop_back();
  return outcome.output;
}

bool available(SandboxFixture& fixture) {
  const backends::Capabilities& can = fixture.can();
  if (can.usable) return true;
  const char* ci = std::getenv("CI");
  if (ci && std::string(ci) == "true") FAIL("backend " << fixture.kind() << ": " << can.reason);
  results::not_tried(can.reason);
  std::cerr << "SKIPPED: backend " << fixture.kind() << " is not usable here: " << can.reason
            << "\n";
  return false;
}

bool applies(bool condition, const std::string& reason) {
  if (!condition) results::not_applicable(reason);
  return condition;
}

bool runs_commands(const SandboxFixture& fixture) {
  return applies(fixture.runs_commands(), "it does not run commands");
}

bool isolates(SandboxFixture& fixture) {
  return applies(fixture.can().isolation != backends::Isolation::none, "it provides no isolation");
}

bool runs_here(SandboxFixture& fixture) {
  return applies(!fixture.can().remote, "its processes are on another machine");
}

bool limits(SandboxFixture& fixture, bool backends::Capabilities::*limit) {
  return applies(fixture.can_there().*limit, "its login there may not make control groups");
}

}  // namespace moorage::tests
