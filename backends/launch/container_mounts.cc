// Prepares the inside of an engine-made container from outside (start.h).
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/os/mount.h"
#include "base/os/namespaces.h"
#include "base/parts.h"
#include "root.h"
#include "start.h"

namespace moorage::launch {
namespace {

// Mounts that engines add: sysfs with the control groups (reveals the host), message queues that
// need no file system, and files with the names of the host and its resolvers; ours replace them
// (backends/engine/container_users.h).
constexpr const char* kTakenAway[] = {"/sys", "/dev/mqueue", "/etc/resolv.conf", "/etc/hostname",
                                      "/etc/hosts"};

constexpr base::MountAttributes kOnlyToRead{
    .read_only = true, .nosuid = true, .nodev = true, .noexec = true};

// Below the root of an own file system; parents first.
void make_directories(const Fd& root, std::string_view path) {
  for (size_t end = 0; end != std::string_view::npos;) {
    end = path.find('/', end + 1);
    const std::string part(path.substr(0, end));
    if (mkdirat(root.get(), part.c_str(), 0755) != 0 && errno != EEXIST)
      base::throw_errno("create /sys/" + part);
  }
}

// With mount points for the shown parts of the host's, and for control groups.
Fd empty_sys(const Request& request) {
  Fd sys = base::make_file_system("tmpfs", {{"size", "64k"}, {"mode", "755"}}, {});
  constexpr std::string_view kSys = "/sys/";
  for (const char* directory : {"devices/system/cpu", "devices/system/node", "fs/cgroup"})
    make_directories(sys, directory);
  for (const auto& [source, target] : request.cgroups) {
    if (!target.starts_with(kCgroups)) make_directories(sys, target.substr(kSys.size()));
  }
  for (const auto& [place, target] : request.cgroup_links) {
    const std::string link = place.substr(kSys.size());
    make_directories(sys, link.substr(0, link.rfind('/')));
    base::check(symlinkat(target.c_str(), sys.get(), link.c_str()), "link " + place);
  }
  base::set_mount_attributes(sys.get(), kOnlyToRead);
  return sys;
}

// A link to the host's memory, which is masked; no other backend has it.
void remove_core_link() {
  if (unlink("/dev/core") != 0 && errno != ENOENT) base::throw_errno("remove /dev/core");
}

void take_away(const char* place) {
  if (umount2(place, MNT_DETACH | UMOUNT_NOFOLLOW) == 0) return;
  if (errno != EINVAL && errno != ENOENT) base::throw_errno(std::string("unmount ") + place);
}

Fd nothing() {
  return base::make_file_system("tmpfs", {{"size", "0"}, {"mode", "755"}}, kOnlyToRead);
}

// Done here: not every engine accepts a list of paths to mask.
void mask(std::vector<Place>& places) {
  for (const char* file : kMaskedFiles) {
    const std::string path = std::string("/proc/") + file;
    if (base::path_exists(path)) places.push_back({cloned("/dev/null", {}), path});
  }
  for (const char* directory : kMaskedDirectories) {
    const std::string path = std::string("/proc/") + directory;
    if (base::path_exists(path)) places.push_back({nothing(), path});
  }
}

// The options of the terminals' own file system, which an engine mounts without a limit: the
// current ones plus ours. In the form "key" or "key=value", as /proc shows them.
std::vector<std::pair<std::string, std::string>> bounded_terminals(const Request& request) {
  std::string words;
  const std::string mountinfo = "/proc/" + std::to_string(request.init_pid) + "/mountinfo";
  for (const auto& mount : base::parse_mounts(base::read_file(mountinfo))) {
    if (mount.type == "devpts" && mount.target == "/dev/pts") words = mount.options;
  }
  std::vector<std::pair<std::string, std::string>> options;
  for (const std::string_view word : base::split(words, ',')) {
    const size_t equal = word.find('=');
    if (equal == std::string::npos || word.starts_with("max=")) continue;
    options.emplace_back(word.substr(0, equal), word.substr(equal + 1));
  }
  options.emplace_back("max", std::to_string(kMaxTerminals));
  return options;
}

std::vector<Place> clone_files(const Request& request) {
  std::vector<Place> files;
  for (const auto& [source, target] : request.files)
    files.push_back({cloned(source, kOnlyToRead), target});
  return files;
}

}  // namespace

void furnish(const Request& request) {
  std::optional<Fd> id_map;
  if (request.maps_ids)
    id_map = base::make_user_namespace({{0, request.first_host_id, kIdsPerSandbox}});
  // While the host's paths are visible.
  std::vector<Place> places;
  places.push_back({empty_sys(request), "/sys"});
  mask(places);
  for (const std::string& name : lxcfs_files())
    places.push_back({cloned(kLxcfs + name, kOnlyToRead), "/proc/" + name});
  for (Place& place : clone_shared_places(request, id_map)) places.push_back(std::move(place));
  for (Place& place : clone_files(request)) places.push_back(std::move(place));

  const auto terminals = bounded_terminals(request);
  base::in_mount_namespace({request.init_pid, request.init_start_ticks}, [&] {
    for (const char* place : kTakenAway) take_away(place);
    remove_core_link();
    for (const Place& place : places) base::attach_mount(place.mount.get(), place.target);
    base::reconfigure_file_system("/dev/pts", terminals);
  });
}

}  // namespace moorage::launch
