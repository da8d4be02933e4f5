#include "engines.h"

#include <cstdlib>
#include <sstream>

#include "base/os/files.h"

namespace moorage::tests {
namespace {

std::string setting(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? value : "";
}

std::string variable_of(const std::string& entry) {
  return entry == "docker" ? "MOORAGE_TEST_DOCKER" : "MOORAGE_TEST_DOCKER_USERNS";
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// The machine of ./check --vm needs no engine.
bool must_be_there() { return setting("CI") == "true" && setting("MOORAGE_TEST_VM").empty(); }

}  // namespace

Engine find_engine(const std::string& entry) {
  Engine engine{entry, entry, "", ""};
  if (!entry.starts_with("docker")) return engine;
  engine.backend = "docker";
  engine.socket = setting(variable_of(entry) + "_SOCKET");
  engine.pid_file = setting(variable_of(entry) + "_PIDFILE");
  return engine;
}

std::vector<std::string> contract_backends() {
  const std::string named = setting("MOORAGE_TEST_BACKENDS");
  if (!named.empty()) return split(named, ' ');
  std::vector<std::string> entries{"fake", "process", "lxc"};
  for (const char* entry : {"docker", "docker-userns"}) {
    if (!find_engine(entry).socket.empty() || must_be_there()) entries.emplace_back(entry);
  }
  return entries;
}

std::vector<std::string> isolating_backends() {
  std::vector<std::string> entries = contract_backends();
  std::erase_if(entries, [](const std::string& entry) {
    return entry != "lxc" && !entry.starts_with("docker");
  });
  return entries;
}

std::vector<std::string> missing_engines() {
  std::vector<std::string> missing;
  for (const char* entry : {"docker", "docker-userns"}) {
    if (!find_engine(entry).socket.empty() || must_be_there()) continue;
    missing.push_back(std::string("backend ") + entry + ": " + variable_of(entry) +
                      "_SOCKET is not set to an engine's socket");
  }
  return missing;
}

std::optional<base::ProcessIdentity> engine_daemon(const Engine& engine) {
  if (engine.pid_file.empty()) return std::nullopt;
  const auto text = base::read_file_if_exists(engine.pid_file);
  if (!text) return std::nullopt;
  return base::identify_process(std::stoi(*text));
}

}  // namespace moorage::tests
