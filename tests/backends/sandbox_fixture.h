// The base of backend tests: a store in a temporary directory, a backend over it with its own
// prefix, sandboxes with a workspace and a home, and commands run in them to their end. The
// destructor destroys every sandbox and removes the store.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/backend.h"
#include "backends/cgroups/cgroups.h"
#include "backends/registry.h"
#include "engines.h"
#include "other_machine.h"
#include "patience.h"
#include "running_exec.h"

namespace moorage::tests {

class SandboxFixture {
 public:
  // `entry` as in engines.h.
  explicit SandboxFixture(const std::string& entry,
                          const std::function<void(backends::BackendOptions&)>& change = {});
  ~SandboxFixture();

  backends::Backend& backend() { return *backend_; }
  const backends::Capabilities& can();
  // With all that depends on the login on another machine and on what that machine can set: known
  // once one sandbox ran there.
  const backends::Capabilities& can_there();
  const Engine& engine() const { return engine_; }
  const std::string& kind() const { return engine_.entry; }
  bool runs_commands() const { return kind() != "fake"; }
  bool allows_root() { return can_there().root; }
  const std::string& prefix() const { return options_.name_prefix; }
  const std::string& store() const { return store_; }
  // A second backend object over the same store, as after a daemon restart.
  std::shared_ptr<backends::Backend> another_backend() const;

  // A spec with name "<prefix>sb_N", its own id range, directory and mounts.
  backends::SandboxSpec spec(int number);
  // What its processes use now, wherever they run.
  Use use(int number);
  // With that spec; keeps none of its mounts, which would stay busy as long as we hold them.
  backends::SandboxStatus start(int number);
  // Likewise of another machine: with the files of the sandbox's number.
  backends::SandboxStatus start(const backends::SandboxSpec& spec);
  std::string group(int number) const {  // in the unified hierarchy
    return backends::SandboxCgroup(backends::find_cgroups(), name(number)).unified_path();
  }
  std::string directory(int number) const {
    return store_ + "/sandboxes/sb_" + std::to_string(number);
  }
  std::string name(int number) const { return prefix() + "sb_" + std::to_string(number); }
  std::string workspace(int number) const;  // on the host
  std::string home(int number) const;
  // On another machine, commands have files of their own. The first brings their changes here, the
  // second takes ours there: absolute paths inside. Where they are the same files, nothing happens.
  void fetch_files(int number);
  void send_files(int number, const std::vector<std::string>& paths);
  RunningExec begin(int number, const Command& command);
  Outcome run(int number, const Command& command) { return begin(number, command).finish(); }
  // `sh -c script`; fails the test unless it exits with 0. Trailing newlines are cut.
  std::string shell(int number, const std::string& script, const std::string& user = "user");
  // The path inside of a test program, copied into the workspace.
  std::string program(int number, const std::string& path);
  // A detached mount of a new directory, with the sandbox's ids, to replace /workspace.
  base::Fd mount_of(const std::string& path, const backends::SandboxSpec& spec);

 private:
  Engine engine_;
  std::string store_;
  backends::BackendOptions options_;
  std::shared_ptr<backends::Backend> backend_;
  std::optional<backends::Capabilities> can_;
  std::vector<base::Fd> mounts_;       // lent to specs
  std::map<int, std::string> groups_;  // names of the control groups on other machines
  int execs_ = 0;
};

// False: the engine is missing here. Reports it loudly, and fails the test where CI=true.
bool available(SandboxFixture& fixture);
// False: this backend does not make the promise. The reason appears in docs/backends.md.
bool applies(bool condition, const std::string& reason);
bool runs_commands(const SandboxFixture& fixture);
bool isolates(SandboxFixture& fixture);
bool runs_here(SandboxFixture& fixture);  // not on another machine
bool limits(SandboxFixture& fixture, bool backends::Capabilities::*limit);

// Waits for the condition; a deadline of one second is itself part of the test.
template <typename Condition>
bool within(std::chrono::milliseconds deadline, const Condition& condition) {
  const auto until = std::chrono::steady_clock::now() + patient(deadline);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}
template <typename Condition>
bool within_a_second(const Condition& condition) {
  return within(std::chrono::seconds(1), condition);
}

}  // namespace moorage::tests
