// What the tests of backends stand on: a store in a temporary directory, a backend over it with a
// prefix of its own, sandboxes with a workspace and a home, and commands that run in them to their
// end. On destruction every sandbox is destroyed and the store removed.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/backend.h"
#include "backends/cgroups.h"
#include "backends/registry.h"
#include "patience.h"

namespace moorage::tests {

struct Outcome {
  std::string kind;  // exited, signalled, timed_out
  int code = -1;
  int signal = 0;
  std::string output;  // both streams, in order
  std::string text;    // what the warden said of a command that could not be started
  uint64_t oom_kills = 0;
};

struct Command {
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment{
      {"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
      {"HOME", "/home/user"},
      {"LANG", "C.UTF-8"}};
  std::string user = "user";
  std::string directory = "/workspace";
  int64_t timeout_ms = 30'000;
};

class SandboxFixture {
 public:
  explicit SandboxFixture(const std::string& backend_name,
                          const std::function<void(backends::BackendOptions&)>& change = {});
  ~SandboxFixture();

  backends::Backend& backend() { return *backend_; }
  const std::string& kind() const { return kind_; }
  bool runs_commands() const { return kind_ != "fake"; }
  bool isolates() const { return kind_ == "lxc"; }
  const std::string& prefix() const { return options_.name_prefix; }
  const std::string& store() const { return store_; }
  // A second backend object over the same store, as after a restart of the daemon.
  std::unique_ptr<backends::Backend> another_backend() const;

  // A spec with name "<prefix>sb_N", its own id range, directory and mounts.
  backends::SandboxSpec spec(int number);
  backends::SandboxStatus start(int number) { return backend_->start(spec(number)); }
  std::string group(int number) const {  // in the unified hierarchy
    return backends::SandboxCgroup(backends::find_cgroups(), name(number)).unified_path();
  }
  std::string name(int number) const { return prefix() + "sb_" + std::to_string(number); }
  std::string workspace(int number) const;  // on the host
  Outcome run(int number, const Command& command);
  // `sh -c script`; fails the test unless it exits with 0. Trailing newlines are cut.
  std::string shell(int number, const std::string& script, const std::string& user = "user");

 private:
  std::string kind_;
  std::string store_;
  backends::BackendOptions options_;
  std::unique_ptr<backends::Backend> backend_;
  std::vector<base::Fd> mounts_;  // lent to specs
  int execs_ = 0;
};

// False: the engine is missing here. Says so loudly, and fails the test where CI=true.
bool available(SandboxFixture& fixture);

std::string read_all(const std::string& path);
// Waits for the condition; the deadline is part of what is tested, where it is a second.
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
