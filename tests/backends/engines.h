// What the contract suite runs against: the backends of this host, and those of an engine that the
// environment names. MOORAGE_TEST_DOCKER_SOCKET is the socket of an engine without userns-remap,
// MOORAGE_TEST_DOCKER_USERNS_SOCKET of one with it; with _PIDFILE in place of _SOCKET, where that
// engine writes its pid: it may be killed, and somebody starts it again. MOORAGE_TEST_BACKENDS
// names others, with spaces between: a new backend, or one that is worked on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/process.h"

namespace moorage::tests {

struct Engine {
  std::string entry;    // "docker", "docker-userns": a column of the table
  std::string backend;  // in the registry
  std::string socket;   // of the engine; empty: it needs none, or is not told
  std::string pid_file;
};

Engine find_engine(const std::string& entry);
// Those to test here. Without its engine a backend is among them where CI=true, to fail there.
std::vector<std::string> contract_backends();
std::vector<std::string> isolating_backends();  // of them, those that are to keep strangers in
std::vector<std::string> missing_engines();     // in sentences

// The engine's daemon; nothing: it is not told. Whoever told it starts it again when it dies.
std::optional<base::ProcessIdentity> engine_daemon(const Engine& engine);

}  // namespace moorage::tests
