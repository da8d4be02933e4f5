// What the contract suite runs against: the backends of this host, and those of an engine that the
// environment names. MOORAGE_TEST_DOCKER_SOCKET is the socket of an engine without userns-remap,
// MOORAGE_TEST_DOCKER_USERNS_SOCKET of one with it; with _PIDFILE in place of _SOCKET, where that
// engine writes its pid, so that it may be killed. MOORAGE_TEST_BACKENDS names others, with spaces
// between: a new backend, or one that is worked on.
#pragma once

#include <memory>
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

// The daemon of an engine, killed and started again as it was.
class EngineDaemon {
 public:
  explicit EngineDaemon(const Engine& engine);  // throws not_found: not told, or not there
  void kill();                                  // SIGKILL; returns when it is gone
  void start();                                 // with the arguments and environment that it had

 private:
  base::ProcessIdentity daemon_;
  std::vector<std::string> arguments_;
  std::vector<std::string> environment_;
  std::string program_;
  std::string directory_;
};

}  // namespace moorage::tests
