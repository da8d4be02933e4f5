// The backends for the contract suite: those of this host, and those of engines given in the
// environment. MOORAGE_TEST_DOCKER_SOCKET is the socket of an engine without userns-remap,
// MOORAGE_TEST_DOCKER_USERNS_SOCKET of one with it. _PIDFILE instead of _SOCKET names the engine's
// pid file: tests may kill that engine, and its supervisor restarts it. MOORAGE_TEST_SSH_CONFIG is
// a file for ssh -F that reaches MOORAGE_TEST_SSH_HOST, a machine whose files are also seen here:
// sandboxes live in its MOORAGE_TEST_SSH_DIRECTORY. MOORAGE_TEST_SSH_USER_CONFIG and so on are the
// same with a login that is not root's. MOORAGE_TEST_E2B_URL and MOORAGE_TEST_DAYTONA_URL are
// providers, _KEY the file of the key, _DIRECTORY the files of their machines, seen from here.
// MOORAGE_TEST_BACKENDS selects other backends, separated by spaces: for example a new one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/os/process.h"

namespace moorage::tests {

struct Engine {
  std::string entry;    // "docker", "docker-userns", "ssh", "ssh-user": a column of the table
  std::string backend;  // in the registry
  std::string socket;   // of the engine; empty: not needed or not given
  std::string pid_file;
  // Of another machine.
  std::string ssh_config;  // for ssh -F; empty: not needed or not given
  std::string ssh_host;
  std::string url;  // of a provider
  std::string key_file;
  // Seen from here: of a host, where its sandboxes are; of a provider, one for each machine.
  std::string machines_directory;
};

Engine find_engine(const std::string& entry);
// Backends to test here. With CI=true this includes one without its engine, which then fails.
std::vector<std::string> contract_backends();
std::vector<std::string> missing_engines();  // in sentences

// The engine's daemon; empty: not given. The supervisor that gave it restarts it when it dies.
std::optional<base::ProcessIdentity> engine_daemon(const Engine& engine);

}  // namespace moorage::tests
