#include "engines.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "patience.h"

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

std::string target_of(const std::string& link) {
  char target[PATH_MAX];
  const ssize_t size = base::check(readlink(link.c_str(), target, sizeof target), "read " + link);
  return std::string(target, static_cast<size_t>(size));
}

// No engine is expected in the machine of ./check --vm.
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
                      "_SOCKET names no engine");
  }
  return missing;
}

EngineDaemon::EngineDaemon(const Engine& engine) {
  const auto text = base::read_file_if_exists(engine.pid_file);
  if (engine.pid_file.empty() || !text) {
    throw base::Error(base::Code::not_found, "no pid is told of the engine of " + engine.entry);
  }
  daemon_ = base::identify_process(std::stoi(*text));
  const std::string process = "/proc/" + std::to_string(daemon_.pid);
  arguments_ = split(base::read_file(process + "/cmdline"), '\0');
  environment_ = split(base::read_file(process + "/environ"), '\0');
  program_ = target_of(process + "/exe");
  directory_ = target_of(process + "/cwd");
}

void EngineDaemon::kill() {
  base::check(::kill(daemon_.pid, SIGKILL), "kill the engine");
  const auto until = std::chrono::steady_clock::now() + patient(std::chrono::seconds(10));
  while (base::process_alive(daemon_)) {
    if (std::chrono::steady_clock::now() > until) {
      throw base::Error(base::Code::deadline_exceeded, "the engine outlives its SIGKILL");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void EngineDaemon::start() {
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> list;
    for (std::string& text : texts) list.push_back(text.data());
    list.push_back(nullptr);
    return list;
  };
  const std::vector<char*> arguments = pointers(arguments_);
  const std::vector<char*> environment = pointers(environment_);
  const pid_t child = base::check(fork(), "fork");
  if (child == 0) {
    // A grandchild, which is nobody's to wait for: it outlives this test.
    setsid();
    if (fork() != 0) _exit(0);
    const int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= 2; ++fd) dup2(null, fd);
    close_range(3, ~0U, 0);
    if (chdir(directory_.c_str()) == 0)
      execve(program_.c_str(), arguments.data(), environment.data());
    _exit(127);
  }
  waitpid(child, nullptr, 0);
}

}  // namespace moorage::tests
