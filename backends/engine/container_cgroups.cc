#include "backends/engine/container_cgroups.h"

#include <algorithm>
#include <string_view>

#include "base/os/files.h"
#include "base/parts.h"

namespace moorage::backends {
namespace {

std::vector<std::string_view> parts_of(const std::string& path) {
  std::vector<std::string_view> parts;
  for (const std::string_view part : base::split(path, '/')) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

// A line of /proc/PID/cgroup (cgroups(7)) is "NUMBER:CONTROLLERS:PATH", without controllers for
// version 2. Empty: not in such a hierarchy.
std::string group_of(pid_t pid, bool unified) {
  const std::string lines = base::read_proc_file(pid, "cgroup");
  for (const std::string_view line : base::split(lines, '\n')) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const auto names = base::split(line.substr(first + 1, second - first - 1), ',');
    const bool wanted = unified ? line.starts_with("0::")
                                : std::find(names.begin(), names.end(), "memory") != names.end();
    if (wanted) return std::string(line.substr(second + 1));
  }
  return {};
}

}  // namespace

std::string place_inside(const std::string& root, const std::string& path,
                         const std::string& mount) {
  const auto from = parts_of(root);
  const auto to = parts_of(path);
  const auto at = parts_of(mount);
  const auto [up, down] = std::mismatch(from.begin(), from.end(), to.begin(), to.end());
  const auto steps_up = static_cast<size_t>(from.end() - up);
  if (steps_up == 0 || steps_up >= at.size()) return {};
  std::string place;
  for (size_t i = 0; i + steps_up < at.size(); ++i) place.append("/").append(at[i]);
  for (auto part = down; part != to.end(); ++part) place.append("/").append(*part);
  return place.starts_with("/sys/") && !place.starts_with(std::string(kCgroupsInside) + "/") ? place
                                                                                             : "";
}

ContainerCgroups container_cgroups(const SandboxCgroup& group, const base::ProcessIdentity& init) {
  ContainerCgroups result{group.shown(), {}};
  if (result.shown.empty()) return result;
  auto& [commands, target] = result.shown.front();
  const bool unified = target == kCgroupsInside;
  const std::string engines = group_of(init.pid, unified);
  const std::string place = place_inside(engines, group.commands_path(), target);
  if (place.empty()) return result;
  if (unified) {
    result.links.emplace_back(place, kCgroupsInside);
    return result;
  }
  // Some releases of the JVM know only mounts of their namespace's root, which is the engine's
  // group; it has no other use then. Of two mounts with the controller, they take the last, and
  // .NET the first; its releases before 5 append the whole path to that one, too.
  const std::string top = commands.substr(0, commands.size() - group.commands_path().size());
  const std::string engines_group = top + engines;
  const auto limit = base::read_file_if_exists(commands + "/memory.limit_in_bytes");
  if (!limit || !base::path_exists(engines_group)) return result;
  write_cgroup_file(engines_group + "/memory.limit_in_bytes", *limit);
  result.shown.emplace_back(engines_group, target);
  const std::string again = place_inside(engines, group.commands_path(), place);
  if (!again.empty()) result.links.emplace_back(again, place);
  target = place;
  return result;
}

}  // namespace moorage::backends
