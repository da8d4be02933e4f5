// Disables single defenses of moorage-launch and mooraged, so that the threat suite can show that
// each attack works without its defense. Preloaded only by the suite; the programs themselves have
// no such switch. The environment variable WEAKEN lists the disabled ones, separated by spaces;
// for defenses of an engine on Docker see weak_engine.py:
//
//   account           LXC creates the user namespace, so root's account pays for resources used in
//   it instances,        (mooraged) the kernel has no inotify instance or watch left for root
//   watches
//   allowlist         moorage-launch's own system call filter is not installed
//   late-policy       LXC gets no filter
//   capabilities      all capabilities of the namespace are kept
//   masks             nothing in /proc is covered
//   proc              /proc/sys and /proc/sysrq-trigger are not read-only
//   network, ipc      the namespace of moorage-launch is kept, which the suite chooses
//   devices           no fresh /dev
//   slave             mounts propagate as on the host
//   attributes        no mount is read-only, nosuid, nodev or noexec
//   resolve           paths in an untrusted tree are resolved like on the host
#include <dlfcn.h>
#include <linux/openat2.h>
#include <lxc/lxccontainer.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

namespace {

bool off(const char* defence) {
  const char* list = getenv("WEAKEN");
  std::istringstream words(list ? list : "");
  for (std::string word; words >> word;) {
    if (word == defence) return true;
  }
  return false;
}

template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

using Call = long(long, ...);
// Resolved while the library is loaded: a child that shares the daemon's memory also calls
// syscall(2), and may be killed during dlsym while holding its lock. Null for calls from another
// library during loading.
Call* const real_syscall = real<Call>("syscall");

bool (*set_item)(lxc_container*, const char*, const char*);

bool set_weak_item(lxc_container* container, const char* key, const char* value) {
  const auto is = [&](const char* name) { return std::strcmp(key, name) == 0; };
  if (off("account") && is("lxc.namespace.share.user")) return true;
  if (off("late-policy") && is("lxc.seccomp.profile")) return true;
  if (off("capabilities") && is("lxc.cap.keep")) return true;
  if (off("masks") && is("lxc.mount.entry") && std::strstr(value, " proc/")) return true;
  if (off("proc") && is("lxc.mount.auto")) value = "proc:rw";
  if (off("devices") && is("lxc.autodev")) value = "0";
  if (off("network") && is("lxc.net.0.type")) {
    return set_item(container, "lxc.namespace.keep", off("ipc") ? "net ipc" : "net");
  }
  if (off("network") && std::strncmp(key, "lxc.net.", 8) == 0) return true;
  if (off("ipc") && !off("network") && is("lxc.uts.name")) {
    set_item(container, "lxc.namespace.keep", "ipc");
  }
  return set_item(container, key, value);
}

}  // namespace

extern "C" {

lxc_container* lxc_container_new(const char* name, const char* path) {
  lxc_container* container = real<decltype(lxc_container_new)>("lxc_container_new")(name, path);
  if (container) {
    set_item = container->set_config_item;
    container->set_config_item = set_weak_item;
  }
  return container;
}

int inotify_init1(int flags) noexcept {
  if (!off("instances")) return real<decltype(inotify_init1)>("inotify_init1")(flags);
  errno = EMFILE;
  return -1;
}

int inotify_add_watch(int inotify, const char* path, uint32_t mask) noexcept {
  if (!off("watches"))
    return real<decltype(inotify_add_watch)>("inotify_add_watch")(inotify, path, mask);
  errno = ENOSPC;
  return -1;
}

int mount(const char* source, const char* target, const char* type, unsigned long flags,
          const void* data) noexcept {
  if (off("slave") && (flags & (MS_SLAVE | MS_PRIVATE))) return 0;
  return real<decltype(mount)>("mount")(source, target, type, flags, data);
}

int mount_setattr(int directory, const char* path, unsigned flags, mount_attr* attributes,
                  size_t size) noexcept {
  if (off("slave")) attributes->propagation = 0;
  if (off("attributes")) {
    attributes->attr_set &= ~static_cast<uint64_t>(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
                                                   MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
  }
  return real<decltype(mount_setattr)>("mount_setattr")(directory, path, flags, attributes, size);
}

int move_mount(int from, const char* from_path, int to, const char* to_path,
               unsigned flags) noexcept {
  // Only for backends/launch/container_mounts.cc: LXC, recognized by its settings, has its own uses
  // for such paths.
  if (off("masks") && !set_item && std::strncmp(to_path, "/proc/", 6) == 0) return 0;
  return real<decltype(move_mount)>("move_mount")(from, from_path, to, to_path, flags);
}

long syscall(long number, ...) noexcept {
  long argument[6];
  va_list list;
  va_start(list, number);
  for (long& value : argument) value = va_arg(list, long);
  va_end(list);
  if (number == SYS_seccomp && off("allowlist")) return 0;
  open_how how{};
  if (number == SYS_openat2 && off("resolve")) {
    how = *reinterpret_cast<open_how*>(argument[2]);
    how.resolve = 0;
    argument[2] = reinterpret_cast<long>(&how);
  }
  Call* const call = real_syscall ? real_syscall : real<Call>("syscall");
  return call(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}

}  // extern "C"
