// The backends for the contract suite: those of this host, and those of engines given in the
// environment. MOORAGE_TEST_DOCKER_SOCKET is the socket of an engine without userns-remap,
// MOORAGE_TEST_DOCKER_USERNS_SOCKET of one with it. _PIDFILE instead of _SOCKET names the engine's
// pid file: tests may kill that engine, and its supervisor restarts it. MOORAGE_TEST_SSH_CONFIG is
// a file for ssh -F that reaches MOORAGE_TEST_SSH_HOST, a machine whose files are also seen here:
// sandboxes live in its MOORAGE_TEST_SSH_DIRECTORY. MOORAGE_TEST_BACKENDS selects other backends,
// separated by spaces: for example a new one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/os/process.h"

namespace moorage::tests {

struct Engine {
  std::string entry;    // "docker", "docker-userns", "ssh": a column of the table
  std::string backend;  // in the registry
  std::string socket;   // of the engine; empty: not needed or not given
  std::string pid_file;
  // Of another machine.
  std::string ssh_config;  // for ssh -F; empty: not needed or not given
  std::string ssh_host;
  std::string ssh_directory;  // there, seen from here
};

Engine find_engine(const std::string& entry);
// Backends to test here. With CI=true this includes one without its engine, which then fails.
std::vector<std::string> contract_backends();
std::vector<std::string> isolating_backends();  // those that must isolate
std::vector<std::string> missing_engines();     // in sentences

// The engine's daemon; empty: not given. The supervisor that gave it restarts it when it dies.
std::optional<base::ProcessIdentity> engine_daemon(const Engine& engine);

}  // namespace moorage::tests
