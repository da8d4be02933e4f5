#include "root.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <optional>
#include <vector>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/os/mount.h"
#include "base/os/processors.h"

namespace moorage::launch {
namespace {

constexpr base::MountAttributes kData{.nosuid = true, .nodev = true};
constexpr const char* kAlternatives = "/etc/alternatives";
constexpr base::MountAttributes kReadOnlyData{.read_only = true, .nosuid = true, .nodev = true};

// Charged to the commands' memory page by page; the size only keeps `df` accurate and prevents one
// directory from using all.
Fd private_tmpfs(const Request& request, const char* mode) {
  const std::string id = std::to_string(request.owner_id);
  return base::make_file_system("tmpfs",
                                {{"size", std::to_string(request.memory_bytes / 2)},
                                 {"nr_inodes", "262144"},
                                 {"mode", mode},
                                 {"uid", id},
                                 {"gid", id}},
                                kData);
}

void make_directory(const std::string& path, mode_t mode) {
  base::check(mkdir(path.c_str(), mode), "create " + path);
}

void cover_run() {
  Fd run = base::make_file_system("tmpfs", {{"size", "1m"}, {"mode", "755"}}, kData);
  base::attach_mount(run.get(), "/run");
  for (const char* path : {kRoot, kLxcPath, kLxcRoot}) make_directory(path, 0755);
}

// Where programs read their limits: their own groups alone. Version 1 has one for each controller,
// below a directory that has nothing else.
void clone_cgroups(const Request& request, std::vector<Place>& places) {
  constexpr base::MountAttributes kOnlyToRead{
      .read_only = true, .nosuid = true, .nodev = true, .noexec = true};
  const std::string top = kCgroups;
  const std::string below = top + "/";
  std::vector<std::string> names;
  for (const auto& [source, target] : request.cgroups) {
    if (target.starts_with(below)) names.push_back(target.substr(below.size()));
  }
  if (!names.empty()) {
    Fd directory = base::make_file_system("tmpfs", {{"size", "64k"}, {"mode", "755"}}, {});
    for (const std::string& name : names)
      base::check(mkdirat(directory.get(), name.c_str(), 0755), "create " + below + name);
    base::set_mount_attributes(directory.get(), kOnlyToRead);
    places.push_back({std::move(directory), top});
  }
  for (const auto& [source, target] : request.cgroups)
    places.push_back({cloned(source, kOnlyToRead), target});
}

// Everything except the root itself, in attach order.
std::vector<Place> clone_places(const Request& request, const std::optional<Fd>& id_map) {
  std::vector<Place> places = clone_shared_places(request, id_map);
  places.push_back({cloned(request.bootstrap, kData), "/.moorage/bootstrap"});
  places.push_back({cloned(request.warden, kReadOnlyData), "/.moorage/warden"});
  return places;
}

}  // namespace

std::vector<std::string> lxcfs_files() {
  std::vector<std::string> names;
  for (const char* name : kOfLxcfs) {
    // Not with path_exists alone: without the service, the directory is an ordinary one.
    struct statfs info;
    const std::string path = std::string(kLxcfs) + name;
    if (statfs(path.c_str(), &info) == 0 && info.f_type == FUSE_SUPER_MAGIC)
      names.emplace_back(name);
  }
  return names;
}

Fd cloned(const std::string& path, const base::MountAttributes& attributes,
          const std::optional<Fd>& id_map) {
  Fd mount = base::clone_mount(path);
  // "furnish" clones in the host's namespace, where systemd has everything shared: a file over a
  // part of /sys would be there for the whole host.
  base::set_mount_slave(mount.get());
  base::set_mount_attributes(mount.get(), attributes);
  if (id_map) base::set_mount_idmap(mount.get(), id_map->get());
  return mount;
}

std::vector<Place> clone_shared_places(const Request& request, const std::optional<Fd>& id_map) {
  std::vector<Place> places;
  if (request.host_usr) {
    // sudo is a setuid program in /usr.
    base::MountAttributes usr = kReadOnlyData;
    usr.nosuid = !request.sudo;
    places.push_back({cloned("/usr", usr, id_map), "/usr"});
    // Many programs in /usr/bin are links to here: a package that the host gets later works inside.
    if (base::path_exists(kAlternatives))
      places.push_back({cloned(kAlternatives, kReadOnlyData, id_map), kAlternatives});
  }
  // Of /sys only what programs need to count processors; sysfs itself reveals too much of the host.
  base::MountAttributes data = kReadOnlyData;
  data.noexec = true;
  for (const char* path : kProcessors) {
    if (base::path_exists(path)) places.push_back({cloned(path, data), path});
  }
  if (!request.processors_file.empty() && base::path_exists(base::kOnlineProcessors))
    places.push_back({cloned(request.processors_file, data), base::kOnlineProcessors});
  clone_cgroups(request, places);
  places.push_back({private_tmpfs(request, "1777"), "/tmp"});
  places.push_back({private_tmpfs(request, "1777"), "/var/tmp"});
  places.push_back({private_tmpfs(request, "755"), "/run"});
  places.push_back({private_tmpfs(request, "700"), "/root"});
  return places;
}

void join_cgroup(const Request& request) {
  for (const std::string& path : request.join_files) {
    base::write_all(base::open_file(path, O_WRONLY).get(), "0");
  }
}

void build_root(const Request& request, const base::UserNamespace& ids) {
  base::check_allowance(unshare(CLONE_NEWNS), "create a mount namespace",
                        "user.max_mnt_namespaces or fs.mount-max");
  base::set_propagation_slave("/");

  const std::optional<Fd> id_map = ids.descriptor();
  Fd root = cloned(request.rootfs, kReadOnlyData, id_map);
  Fd group = cloned(request.cgroup, {});
  std::vector<Place> places = clone_places(request, id_map);

  cover_run();
  base::attach_mount(group.get(), kCgroups);
  base::attach_mount(root.get(), kRoot);
  for (const Place& place : places) base::attach_mount(place.mount.get(), kRoot + place.target);
}

}  // namespace moorage::launch
