#include "other_machine.h"

#include <filesystem>
#include <optional>

#include "base/os/files.h"

namespace moorage::tests {
namespace {

namespace fs = std::filesystem;

// A number in the first of these files that exists there.
std::optional<uint64_t> number_in(const fs::path& group, std::initializer_list<const char*> files) {
  for (const char* file : files) {
    if (const auto text = base::read_file_if_exists(group / file)) return std::stoull(*text);
  }
  return std::nullopt;
}

// At the top of a hierarchy, or in the group of a provider's machine. Others come and go.
std::vector<std::string> groups_of(const std::string& name) {
  const std::string top = "/sys/fs/cgroup";
  std::vector<std::string> found;
  std::vector<std::string> places{top};
  for (const std::string& hierarchy : base::list_directory(top)) {
    const std::string path = top + "/" + hierarchy;
    if (!fs::is_directory(path)) continue;
    places.push_back(path);
    for (const std::string& machine : base::list_directory(path)) {
      if (machine.starts_with("rented-")) places.push_back(path + "/" + machine);
    }
  }
  for (const std::string& place : places) {
    if (base::path_exists(place + "/" + name)) found.push_back(place + "/" + name);
  }
  return found;
}

}  // namespace

std::string traces_there(const Engine& engine, const std::string& prefix) {
  std::string found;
  if (engine.machines_directory.empty()) return found;
  for (const std::string& name : base::list_directory(engine.machines_directory)) {
    const bool of_host = name == "bin" || name == "trees" || name == "sandboxes";
    if (!of_host || engine.backend != "ssh") found += "there " + name + "\n";
  }
  const std::string sandboxes = engine.machines_directory + "/sandboxes";
  if (!base::path_exists(sandboxes)) return found;
  for (const std::string& name : base::list_directory(sandboxes)) {
    if (name.starts_with(prefix)) found += "there sandboxes/" + name + "\n";
  }
  return found;
}

std::vector<pid_t> servers_there(const std::string& sandbox) {
  std::vector<pid_t> found;
  for (const std::string& pid : base::list_directory("/proc")) {
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto line = base::read_file_if_exists("/proc/" + pid + "/cmdline");
    const std::string serve("moorage-outpost\0serve\0", 22);
    if (line && line->starts_with(serve) && line->find(sandbox) != std::string::npos)
      found.push_back(std::stoi(pid));
  }
  return found;
}

std::string group_there(const std::string& pid_namespace) {
  for (const std::string& pid : base::list_directory("/proc")) {
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code ended;
    if (fs::read_symlink("/proc/" + pid + "/ns/pid", ended) != pid_namespace) continue;
    const auto groups = base::read_file_if_exists("/proc/" + pid + "/cgroup").value_or("");
    const size_t name = groups.find("moorage-outpost-");
    if (name != std::string::npos) return groups.substr(name, groups.find('\n', name) - name);
  }
  return {};
}

Use use_of_group(const std::string& name) {
  Use use;
  for (const std::string& group : groups_of(name)) {
    const auto memory = number_in(group, {"memory.current", "memory.usage_in_bytes"});
    const auto processes = number_in(group, {"pids.current"});
    use.memory_bytes = memory.value_or(use.memory_bytes);
    use.processes = processes.value_or(use.processes);
  }
  return use;
}

}  // namespace moorage::tests
