#include "engines.h"

#include <array>
#include <cstdlib>
#include <sstream>

#include "base/os/files.h"

namespace moorage::tests {
namespace {

std::string setting(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? value : "";
}

constexpr std::array kGiven{"docker", "docker-userns", "ssh"};

std::string variable_of(const std::string& entry) {
  if (entry == "ssh") return "MOORAGE_TEST_SSH";
  return entry == "docker" ? "MOORAGE_TEST_DOCKER" : "MOORAGE_TEST_DOCKER_USERNS";
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool is_given(const std::string& entry) {
  const Engine engine = find_engine(entry);
  return !engine.socket.empty() || !engine.ssh_config.empty();
}

// The machine of ./check --vm needs no engine.
bool must_be_there() { return setting("CI") == "true" && setting("MOORAGE_TEST_VM").empty(); }

}  // namespace

Engine find_engine(const std::string& entry) {
  Engine engine;
  engine.entry = engine.backend = entry;
  if (entry == "ssh") {
    engine.ssh_config = setting(variable_of(entry) + "_CONFIG");
    engine.ssh_host = setting(variable_of(entry) + "_HOST");
    engine.ssh_directory = setting(variable_of(entry) + "_DIRECTORY");
  }
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
  for (const char* entry : kGiven) {
    if (is_given(entry) || must_be_there()) entries.emplace_back(entry);
  }
  return entries;
}

std::vector<std::string> isolating_backends() {
  std::vector<std::string> entries = contract_backends();
  std::erase_if(entries, [](const std::string& entry) {
    return entry != "lxc" && entry != "ssh" && !entry.starts_with("docker");
  });
  return entries;
}

std::vector<std::string> missing_engines() {
  std::vector<std::string> missing;
  for (const std::string entry : kGiven) {
    if (is_given(entry) || must_be_there()) continue;
    missing.push_back("backend " + entry + ": " + variable_of(entry) +
                      (entry == "ssh" ? "_CONFIG is not set to a file for ssh -F"
                                      : "_SOCKET is not set to an engine's socket"));
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
