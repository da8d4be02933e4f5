// Common parts of the contract's test cases. Each has the tag [contract], takes its backend from
// EACH_BACKEND, and reports with available() and applies() why it skips a backend (see results.h).
#pragma once

#include <signal.h>

#include <catch2/catch.hpp>
#include <string>

#include "backends/cgroups/cgroups.h"
#include "base/os/files.h"
#include "fake_backend.h"
#include "other_machine.h"
#include "sandbox_fixture.h"

#define EACH_BACKEND GENERATE(from_range(moorage::tests::contract_backends()))

namespace moorage::tests {

inline backends::SandboxState state_of(SandboxFixture& sandboxes, int number) {
  return sandboxes.backend().inspect(sandboxes.name(number)).state;
}

inline void kill_init(SandboxFixture& sandboxes, int number) {
  auto* fake = dynamic_cast<backends::FakeBackend*>(&sandboxes.backend());
  if (fake) return fake->kill_init(sandboxes.name(number));
  const int pid = sandboxes.backend().inspect(sandboxes.name(number)).init.pid;
  REQUIRE(pid > 1);
  REQUIRE(kill(pid, SIGKILL) == 0);
}

inline std::string traces_now(const SandboxFixture& sandboxes) {
  const std::string& prefix = sandboxes.prefix();
  std::string found;
  const auto groups = backends::sandbox_cgroups(backends::find_cgroups(), prefix);
  for (const std::string& name : groups) found += "cgroup " + name + "\n";
  for (const std::string& pid : base::list_directory("/proc")) {
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    auto line = base::read_file_if_exists("/proc/" + pid + "/cmdline");
    if (line && line->find(prefix) != std::string::npos) found += "process " + pid + "\n";
  }
  return found + traces_there(sandboxes.engine(), prefix);
}

// Everything of this store that is still visible on the host after all is destroyed. On another
// machine, the processes of a closed connection take a moment to end.
inline std::string traces(const SandboxFixture& sandboxes) {
  std::string found = traces_now(sandboxes);
  if (sandboxes.engine().machines_directory.empty()) return found;
  within(std::chrono::seconds(10), [&] { return (found = traces_now(sandboxes)).empty(); });
  return found;
}

}  // namespace moorage::tests
