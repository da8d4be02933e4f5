#include "backends/probe.h"

#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <sstream>

#include "backends/cgroups/cgroups.h"
#include "backends/probe_mounts.h"
#include "base/error.h"
#include "base/os/files.h"
#include "base/os/mount.h"
#include "base/size_text.h"

namespace moorage::backends {
namespace {

// A check is a function that returns its finding, or throws the problem and its fix.
Check run(const std::string& name, const std::function<std::string()>& body) {
  try {
    return {name, true, body(), {}};
  } catch (const Error& error) {
    return {name, false, error.message(), error.hint()};
  }
}

[[noreturn]] void wrong(const std::string& text, const std::string& hint) {
  throw Error(Code::unsupported, text, hint);
}

std::string check_root() {
  if (geteuid() != 0) wrong("not running as root", "start it with sudo or as a service");
  return "runs as root";
}

std::string check_kernel() {
  utsname name;
  base::check(uname(&name), "read the kernel's version");
  if (auto fault = kernel_fault(name.release, name.version)) wrong(fault->first, fault->second);
  return std::string("Linux ") + name.release;
}

std::string check_cgroups() {
  const CgroupHierarchies found = find_cgroups();
  if (!base::path_exists(found.unified + "/cgroup.procs") ||
      access(found.unified.c_str(), W_OK) < 0) {
    wrong("cgroups are mounted read-only at " + found.unified,
          "run on the host, not in a container");
  }
  std::string missing;
  if (!found.memory) missing += " memory";
  if (!found.pids) missing += " pids";
  if (!found.cpu) missing += " cpu";
  if (!missing.empty()) {
    wrong("cgroup controllers are missing:" + missing,
          "boot with cgroup_enable=memory, or without cgroup_disable=");
  }
  return "cgroup " + found.kind() + " with memory, pids and cpu";
}

std::string check_lxc() {
  for (const char* path :
       {"/usr/lib/x86_64-linux-gnu/liblxc.so.1", "/usr/lib/aarch64-linux-gnu/liblxc.so.1",
        "/usr/lib/liblxc.so.1", "/usr/lib64/liblxc.so.1", "/usr/local/lib/liblxc.so.1"}) {
    if (access(path, R_OK) == 0) return std::string("liblxc is at ") + path;
  }
  wrong("LXC's library is not installed", "apt-get install liblxc1");
}

std::string check_seccomp() {
  auto actions = base::read_file_if_exists("/proc/sys/kernel/seccomp/actions_avail");
  if (!actions || actions->find("errno") == std::string::npos) {
    wrong("this kernel has no seccomp filters", "use a kernel with CONFIG_SECCOMP_FILTER");
  }
  return "seccomp filters";
}

std::string check_user_namespaces() {
  auto limit = base::read_file_if_exists("/proc/sys/user/max_user_namespaces");
  if (!limit || limit->starts_with("0")) {
    wrong("user namespaces are switched off", "sysctl -w user.max_user_namespaces=15000");
  }
  return "user namespaces";
}

std::string check_merged_usr() {
  struct stat info;
  if (lstat("/bin", &info) < 0 || !S_ISLNK(info.st_mode)) {
    wrong("this host's /usr is not merged, so image host cannot be made from it",
          "apt-get install usrmerge");
  }
  return "merged /usr";
}

std::string check_program(const std::string& package) {
  const std::string path = "/usr/bin/" + package;
  if (access(path.c_str(), X_OK) < 0) {
    wrong(package + " is not installed, so sandboxes of image host lack it",
          "apt-get install " + package);
  }
  return path;
}

std::string check_apparmor() {
  auto enabled = base::read_file_if_exists("/sys/module/apparmor/parameters/enabled");
  if (!enabled || !enabled->starts_with("Y")) return "AppArmor is not active; nothing relies on it";
  auto profiles = base::read_file_if_exists("/sys/kernel/security/apparmor/profiles");
  if (!profiles) {
    wrong("AppArmor is active but its profiles cannot be seen",
          "mount -t securityfs securityfs /sys/kernel/security");
  }
  if (profiles->find("lxc-container-default-cgns") == std::string::npos) {
    wrong("AppArmor is active but LXC's profiles are not loaded",
          "apt-get install apparmor liblxc-common, then: apparmor_parser -r "
          "/etc/apparmor.d/lxc-containers");
  }
  return "AppArmor is active with LXC's profile";
}

std::string check_disk(const std::string& store) {
  struct statfs info;
  base::check(statfs(store.c_str(), &info), "inspect the file system of " + store);
  const double free_gib = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_bsize) /
                          static_cast<double>(1ULL << 30);
  char text[160];
  std::snprintf(text, sizeof text, "%.0f GiB free for all workspaces together", free_gib);
  return text;
}

std::string check_docker(const std::string& socket) {
  if (access(socket.c_str(), F_OK) == 0) return "backend docker has its engine at " + socket;
  if (access("/usr/sbin/dockerd", X_OK) == 0 || access("/usr/bin/dockerd", X_OK) == 0)
    return "Docker is installed but not running; only backend docker needs it";
  return "Docker is not installed; only backend docker needs it";
}

std::string check_id_ranges(const ProbeOptions& options) {
  const uint64_t pool_end =
      uint64_t{options.sandbox_first_id} + uint64_t{options.sandbox_id_slots} * 65536;
  const uint64_t disk_end = uint64_t{options.disk_first_id} + 65538;
  auto overlaps = [&](uint64_t first, uint64_t end) {
    return (first < pool_end && end > options.sandbox_first_id) ||
           (first < disk_end && end > options.disk_first_id);
  };
  const std::string hint = "choose other values of sandbox_first_id and disk_first_id";
  if (pool_end > options.disk_first_id && disk_end > options.sandbox_first_id) {
    wrong("the sandboxes' id range and the store's overlap", hint);
  }
  auto refuse_used = [&](const char* path, int id_field, int count_field) {
    std::istringstream lines(base::read_file_if_exists(path).value_or(""));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream fields(line);
      uint64_t first = 0;
      uint64_t count = 1;
      std::string field;
      for (int i = 0; std::getline(fields, field, ':'); ++i) {
        if (i == id_field) first = std::strtoull(field.c_str(), nullptr, 10);
        if (i == count_field) count = std::strtoull(field.c_str(), nullptr, 10);
      }
      if (overlaps(first, first + count)) {
        wrong(std::string("ids of sandboxes are in use: ") + path + " has the line " + line, hint);
      }
    }
  };
  refuse_used("/etc/subuid", 1, 2);
  refuse_used("/etc/subgid", 1, 2);
  refuse_used("/etc/passwd", 2, -1);
  refuse_used("/etc/group", 2, -1);
  return std::to_string(options.sandbox_id_slots) + " sandboxes can run at once, ids from " +
         std::to_string(options.sandbox_first_id);
}

// Which storage driver the layers use, and why.
std::string describe_storage(const ProbeOptions& options) {
  if (options.store_image.empty()) {
    return "overlay: the store's file system (" + base::mount_of(options.store).type +
           ") supports everything layers need";
  }
  struct stat status {};
  if (stat(options.store_image.c_str(), &status) < 0)
    return "image: " + options.store_image + ", set as store.image; the daemon creates it";
  return "image: " + base::size_text(static_cast<uint64_t>(status.st_size)) + " of ext4 in " +
         options.store_image + " on " + base::mount_of(options.store_image).type +
         ", set as store.image" + (options.store.empty() ? "; the daemon mounts it" : "");
}

}  // namespace

std::optional<std::pair<std::string, std::string>> kernel_fault(const std::string& release,
                                                                const std::string& version) {
  struct {
    int major = 0;
    int minor = 0;
    int patch = 0;
  } found;
  std::sscanf(release.c_str(), "%d.%d", &found.major, &found.minor);
  if (found.major < 6 || (found.major == 6 && found.minor < 1)) {
    return std::pair("Linux " + release + " is too old",
                     "upgrade to Linux 6.1 or later (Debian 12 has it)");
  }
  // Debian's release is 6.1.0-18-amd64; the version names its base: Debian 6.1.76-1.
  const size_t debian = version.find("Debian ");
  const std::string text = debian == std::string::npos ? release : version.substr(debian + 7);
  std::sscanf(text.c_str(), "%d.%d.%d", &found.major, &found.minor, &found.patch);
  // CVE-2023-0386, setuid programs through an overlay's copy-up: fixed in 6.2 and 6.1.9.
  if (found.major == 6 && found.minor == 1 && found.patch < 9) {
    return std::pair("Linux " + release + " has a security hole in overlays (CVE-2023-0386)",
                     "install the kernel's security updates (6.1.9 or later), then reboot");
  }
  return std::nullopt;
}

std::string kernel_release() {
  utsname name;
  return uname(&name) == 0 ? name.release : "unknown";
}

std::string cgroup_kind() {
  return parse_cgroup_mounts(base::read_file("/proc/self/mountinfo")).kind();
}

std::vector<Check> check_container_host(const std::string& directory) {
  std::vector<Check> checks{
      run("root", check_root),      run("kernel", check_kernel),
      run("cgroup", check_cgroups), run("user namespaces", check_user_namespaces),
      run("proc", try_own_proc),    run("seccomp", check_seccomp),
      run("lxc", check_lxc),        run("apparmor", check_apparmor),
      run("usr", check_merged_usr), run("idmap of /usr", [] { return try_idmapped_mount("/usr"); }),
  };
  if (!directory.empty())
    checks.push_back(run("idmap of the store", [&] { return try_idmapped_mount(directory); }));
  return checks;
}

std::vector<Check> check_engine_host(const std::string& directory) {
  return {run("root", check_root), run("kernel", check_kernel), run("cgroup", check_cgroups),
          run("usr", check_merged_usr),
          run("idmap of the store", [&] { return try_idmapped_mount(directory); })};
}

std::vector<Check> probe_host(const ProbeOptions& options) {
  std::vector<Check> checks = check_container_host(options.store);
  if (!options.store.empty()) {
    checks.push_back(
        run("overlay", [&] { return try_overlay(options.store, options.disk_first_id); }));
  }
  if (options.store.empty() || checks.back().ok)  // the store's own check reports overlay problems
    checks.push_back(run("storage", [&] { return describe_storage(options); }));
  checks.push_back(run("ids", [&] { return check_id_ranges(options); }));
  if (!options.store.empty())
    checks.push_back(run("disk", [&] { return check_disk(options.store); }));
  checks.push_back(run("docker", [&] { return check_docker(options.docker_socket); }));
  for (const char* package : {"sudo", "git", "python3"}) {
    checks.push_back(run(package, [&] { return check_program(package); }));
  }
  return checks;
}

}  // namespace moorage::backends
