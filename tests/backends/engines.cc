#include "engines.h"

#include <array>
#include <cctype>
#include <cstdlib>
#include <sstream>

#include "base/os/files.h"

namespace moorage::tests {
namespace {

std::string setting(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? value : "";
}

constexpr std::array kGiven{"docker", "docker-userns", "ssh", "ssh-user", "e2b", "daytona"};

bool is_ssh(const std::string& entry) { return entry.starts_with("ssh"); }
bool is_docker(const std::string& entry) { return entry.starts_with("docker"); }

// The prefix of those of "ssh-user" is MOORAGE_TEST_SSH_USER.
std::string variable_of(const std::string& entry) {
  std::string name = "MOORAGE_TEST_" + entry;
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

// What is missing of a backend that was not given, after its variable_of().
std::string needed_of(const std::string& entry) {
  if (is_ssh(entry)) return "_CONFIG is not set to a file for ssh -F";
  if (is_docker(entry)) return "_SOCKET is not set to an engine's socket";
  return "_URL is not set to a provider's API";
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool is_given(const std::string& entry) {
  const Engine engine = find_engine(entry);
  return !engine.socket.empty() || !engine.ssh_config.empty() || !engine.url.empty();
}

// The machine of ./check --vm needs no engine.
bool must_be_there() { return setting("CI") == "true" && setting("MOORAGE_TEST_VM").empty(); }

}  // namespace

Engine find_engine(const std::string& entry) {
  const std::string variable = variable_of(entry);
  Engine engine;
  engine.entry = engine.backend = entry;
  if (is_docker(entry)) {
    engine.backend = "docker";
    engine.socket = setting(variable + "_SOCKET");
    engine.pid_file = setting(variable + "_PIDFILE");
  } else if (is_ssh(entry)) {
    engine.backend = "ssh";
    engine.ssh_config = setting(variable + "_CONFIG");
    engine.ssh_host = setting(variable + "_HOST");
    engine.machines_directory = setting(variable + "_DIRECTORY");
  } else if (entry == "e2b" || entry == "daytona") {
    engine.url = setting(variable + "_URL");
    engine.key_file = setting(variable + "_KEY");
    engine.machines_directory = setting(variable + "_DIRECTORY");
  }
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

std::vector<std::string> missing_engines() {
  std::vector<std::string> missing;
  for (const std::string entry : kGiven) {
    if (is_given(entry) || must_be_there()) continue;
    missing.push_back("backend " + entry + ": " + variable_of(entry) + needed_of(entry));
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
