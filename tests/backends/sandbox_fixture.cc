#include "sandbox_fixture.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>

#include "backends/envd_client.h"
#include "base/error.h"
#include "base/files.h"
#include "base/journal.h"
#include "base/mount.h"

namespace moorage::tests {
namespace {

constexpr uint32_t kPoolFirstId = 1'000'000'000;
constexpr uint32_t kIdsPerSandbox = 65536;
constexpr uint32_t kUser = 1000;

std::string make_store() {
  const char* top = std::getenv("TMPDIR");
  std::string pattern = std::string(top ? top : "/tmp") + "/moorage-backends.XXXXXX";
  if (!mkdtemp(pattern.data())) base::throw_errno("make a directory for the test");
  return pattern;
}

// A directory of the inside user, shown under the sandbox's ids.
base::Fd idmapped_mount(const std::string& path, uint32_t first_host_id) {
  base::make_directories(path, 0755);
  base::check(chown(path.c_str(), kUser, kUser), "set the owner of " + path);
  base::Fd mount = base::clone_mount(AT_FDCWD, path);
  base::MountAttributes attributes;
  attributes.nosuid = true;
  attributes.nodev = true;
  base::set_mount_attributes(mount.get(), attributes);
  base::Fd map = base::make_user_namespace({{0, first_host_id, kIdsPerSandbox}});
  base::set_mount_idmap(mount.get(), map.get());
  return mount;
}

Outcome read_outcome(int journal, std::chrono::milliseconds deadline) {
  namespace json = boost::json;
  const auto until = std::chrono::steady_clock::now() + patient(deadline);
  base::JournalReader reader(journal);
  Outcome outcome;
  for (;;) {
    auto frame = reader.next();
    if (!frame) {
      if (std::chrono::steady_clock::now() > until)
        throw std::runtime_error("the exec did not end");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    if (base::is_output(frame->header.kind)) outcome.output += frame->payload;
    if (frame->header.kind != base::FrameKind::end) continue;
    const json::object end = json::parse(frame->payload).as_object();
    outcome.kind = json::value_to<std::string>(end.at("kind"));
    if (end.contains("code")) outcome.code = json::value_to<int>(end.at("code"));
    if (end.contains("signal")) outcome.signal = json::value_to<int>(end.at("signal"));
    if (end.contains("error")) outcome.text = json::value_to<std::string>(end.at("error"));
    return outcome;
  }
}

}  // namespace

SandboxFixture::SandboxFixture(const std::string& backend_name,
                               const std::function<void(backends::BackendOptions&)>& change)
    : kind_(backend_name), store_(make_store()) {
  // The store is closed to all but root, as the real one is.
  options_.name_prefix = "moorage-test" + store_.substr(store_.rfind('.') + 1) + "-";
  for (char& c : options_.name_prefix) c = static_cast<char>(std::tolower(c));
  options_.images_directory = store_ + "/images";
  options_.launch_program = LAUNCH_PROGRAM;
  options_.warden_program = WARDEN_PROGRAM;
  options_.allow_process = true;
  if (change) change(options_);
  base::make_directories(options_.images_directory);
  backend_ = backends::make_backend(kind_, options_);
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

std::unique_ptr<backends::Backend> SandboxFixture::another_backend() const {
  return backends::make_backend(kind_, options_);
}

std::string SandboxFixture::workspace(int number) const {
  return store_ + "/ws_" + std::to_string(number) + "/tree";
}

backends::SandboxSpec SandboxFixture::spec(int number) {
  backends::SandboxSpec spec;
  spec.name = name(number);
  spec.directory = store_ + "/sandboxes/sb_" + std::to_string(number);
  spec.first_host_id = kPoolFirstId + static_cast<uint32_t>(number) * kIdsPerSandbox;
  spec.sudo = isolates();
  spec.limits.memory_bytes = 256 << 20;
  spec.limits.cpus = 2;
  spec.limits.pids = 64;
  base::make_directories(spec.directory);
  const std::string home = store_ + "/ws_" + std::to_string(number) + "/home";
  for (const auto& [path, target] :
       {std::pair(workspace(number), "/workspace"), std::pair(home, "/home/user")}) {
    mounts_.push_back(idmapped_mount(path, spec.first_host_id));
    spec.mounts.push_back({mounts_.back().get(), target});
  }
  return spec;
}

Outcome SandboxFixture::run(int number, const Command& command) {
  const std::string exec = "ex_" + std::to_string(++execs_);
  auto group = backend_->exec_group(name(number), exec);
  const std::string path = store_ + "/" + exec;
  base::Fd journal = base::open_file(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
  std::vector<base::Fd> join = group->join_fds();
  base::Fd kill = group->kill_fd();

  backends::StartRequest request;
  request.tag = exec;
  request.argv = command.argv;
  request.environment = command.environment;
  request.directory = command.directory;
  request.user = command.user;
  request.timeout_ms = command.timeout_ms;
  request.journal_fd = journal.get();
  request.kill_fd = kill.get();
  for (const base::Fd& fd : join) request.join_fds.push_back(fd.get());
  backends::EnvdClient client(backend_->endpoint(name(number)));
  client.start(request, std::chrono::seconds(10));

  base::Fd reader = base::open_file(path, O_RDONLY);
  Outcome outcome =
      read_outcome(reader.get(), std::chrono::milliseconds(command.timeout_ms + 10'000));
  outcome.oom_kills = group->oom_kills();
  group->kill();
  REQUIRE(within(std::chrono::seconds(10), [&] { return group->empty(); }));
  group->remove();
  return outcome;
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
  const backends::Capabilities can = fixture.backend().capabilities();
  if (can.usable) return true;
  const char* ci = std::getenv("CI");
  if (ci && std::string(ci) == "true") FAIL("backend " << fixture.kind() << ": " << can.reason);
  std::cerr << "SKIPPED: backend " << fixture.kind() << " is not usable here: " << can.reason
            << "\n";
  return false;
}

std::string read_all(const std::string& path) { return base::read_file(path); }

}  // namespace moorage::tests
