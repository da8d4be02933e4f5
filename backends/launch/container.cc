// The settings of an LXC container, and its start (start.h).
#include <lxc/lxccontainer.h>
#include <sys/resource.h>

#include <cctype>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/os/files.h"
#include "root.h"
#include "root_capabilities.h"
#include "seccomp_filter.h"
#include "start.h"

namespace moorage::launch {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kPolicyFile = "/run/seccomp";

std::string kept_capabilities() {  // in the form of lxc.cap.keep
  std::string names;
  for (const char* name : kRootCapabilities) names += std::string(" ") + name;
  for (char& letter : names) letter = static_cast<char>(std::tolower(letter));
  return names;
}

// As of the other private places. Its pages are charged to the commands.
std::string shared_memory(const Request& request) {
  return "tmpfs dev/shm tmpfs rw,nosuid,nodev,mode=1777,create=dir,nr_inodes=262144,size=" +
         std::to_string(request.memory_bytes / 2) + " 0 0";
}

Settings settings(const Request& request, const Namespaces& namespaces) {
  const std::string range = " 0 " + std::to_string(request.first_host_id) + " 65536";
  Settings items = {
      {"lxc.rootfs.path", std::string("dir:") + kRoot},
      {"lxc.rootfs.mount", kLxcRoot},
      {"lxc.uts.name", "sandbox"},
      {"lxc.idmap", "u" + range},
      {"lxc.idmap", "g" + range},
      // Made before, because LXC would make one owned by host root (base/os/user_namespace.h).
      {"lxc.namespace.share.user", std::to_string(namespaces.users.holder())},
      {"lxc.namespace.share.cgroup", std::to_string(namespaces.cgroups.holder())},
      {"lxc.init.cmd", "/.moorage/warden --bootstrap /.moorage/bootstrap"},
      {"lxc.init.cwd", "/"},
      {"lxc.environment", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
      {"lxc.net.0.type", "empty"},
      {"lxc.net.0.flags", "up"},  // for loopback
      {"lxc.mount.auto", "proc:mixed"},
      {"lxc.mount.entry", shared_memory(request)},
      {"lxc.autodev", "1"},
      {"lxc.tty.max", "0"},
      {"lxc.pty.max", std::to_string(kMaxTerminals)},
      {"lxc.console.path", "none"},
      {"lxc.cap.keep", kept_capabilities()},
      {"lxc.seccomp.profile", kPolicyFile},
      {"lxc.seccomp.allow_nesting", "1"},  // otherwise LXC sees our filter and omits its own
      {"lxc.no_new_privs", request.sudo ? "0" : "1"},
      // The container outlives its monitor: the work must live, not the engine that started it.
      {"lxc.monitor.signal.pdeath", "0"},
      // Below the cover of /sys/fs/cgroup: the sandbox's own group. LXC itself stays outside of the
      // namespace of the commands' groups: from inside it could not move to `monitor` where cgroup2
      // is mounted with nsdelegate (ENOENT).
      {"lxc.cgroup.dir.monitor", "monitor"},
      {"lxc.cgroup.dir.monitor.pivot", "pivot"},
      {"lxc.cgroup.dir.container", "warden"},
      {"lxc.log.file", request.log},
      {"lxc.log.level", "ERROR"},
  };
  // LXC's default AppArmor profile, where active, forbids changing mount propagation inside, which
  // is the first step in every new mount namespace. The call filter and the user namespace confine
  // the sandbox (and are all there is without AppArmor).
  if (request.nested_namespaces) items.emplace_back("lxc.apparmor.profile", "unconfined");
  for (const char* file : kMaskedFiles) {
    if (!base::path_exists(std::string("/proc/") + file)) continue;
    items.emplace_back("lxc.mount.entry",
                       std::string("/dev/null proc/") + file + " none bind,optional 0 0");
  }
  for (const char* directory : kMaskedDirectories) {
    if (!base::path_exists(std::string("/proc/") + directory)) continue;
    items.emplace_back("lxc.mount.entry", std::string("tmpfs proc/") + directory +
                                              " tmpfs ro,nosuid,nodev,noexec,size=0,optional 0 0");
  }
  for (const std::string& name : lxcfs_files())
    items.emplace_back("lxc.mount.entry", kLxcfs + name + " proc/" + name + " none bind,ro 0 0");
  return items;
}

struct Release {
  void operator()(lxc_container* container) const { lxc_container_put(container); }
};

}  // namespace

pid_t start_container(const Request& request, const Namespaces& namespaces) {
  base::write_file(kPolicyFile, late_policy(request.nested_namespaces));
  std::unique_ptr<lxc_container, Release> container(
      lxc_container_new(request.name.c_str(), kLxcPath));
  if (!container) throw Error(Code::unavailable, "LXC could not create a container object");
  // Drop everything from the host's /etc/lxc/default.conf.
  container->clear_config(container.get());
  for (const auto& [key, value] : settings(request, namespaces)) {
    if (!container->set_config_item(container.get(), key.c_str(), value.c_str())) {
      throw Error(Code::unsupported, "this LXC refuses " + key + " = " + value,
                  "install LXC 5.0 or later");
    }
  }
  container->want_daemonize(container.get(), true);
  // Set here: LXC would set it from outside, and a host root without CAP_SYS_RESOURCE could do so
  // only as the owner of the container's ids.
  const rlimit no_core{0, 0};
  base::check(setrlimit(RLIMIT_CORE, &no_core), "forbid core dumps");
  install_allowlist();
  if (!container->start(container.get(), 0, nullptr)) {
    throw Error(Code::unavailable, "LXC could not start the container");
  }
  const pid_t pid = container->init_pid(container.get());
  if (pid <= 0) throw Error(Code::unavailable, "the container exited at startup");
  return pid;
}

}  // namespace moorage::launch
