#include "outpost/inside/root.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/os/mount.h"
#include "base/wire/trust.h"
#include "outpost/inside/etc.h"

namespace moorage::outpost {
namespace {

constexpr unsigned long kData = MS_NOSUID | MS_NODEV;
constexpr uint64_t kMaxMemoryFiles = 16ULL << 30;

constexpr const char* kMaskedFiles[] = {
    "kcore",       "keys",        "kallsyms",      "kmsg",      "timer_list",
    "sched_debug", "key-users",   "latency_stats", "modules",   "sysrq-trigger",
    "interrupts",  "cmdline",     "partitions",    "diskstats", "swaps",
    "slabinfo",    "vmallocinfo", "pagetypeinfo",  "iomem",     "ioports"};
constexpr const char* kMaskedDirectories[] = {"acpi", "scsi", "asound", "bus",
                                              "fs",   "irq",  "driver"};
constexpr const char* kDevices[] = {"null", "zero", "full", "random", "urandom", "tty"};
constexpr const char* kDirectories[] = {".moorage",
                                        ".moorage/certificates",
                                        ".moorage/objects",
                                        "boot",
                                        "dev",
                                        "dev/pts",
                                        "dev/shm",
                                        "etc",
                                        "home",
                                        "home/user",
                                        "media",
                                        "mnt",
                                        "opt",
                                        "proc",
                                        "root",
                                        "run",
                                        "srv",
                                        "sys",
                                        "sys/devices",
                                        "sys/devices/system",
                                        "sys/devices/system/cpu",
                                        "sys/devices/system/node",
                                        "sys/fs",
                                        "sys/fs/cgroup",
                                        "tmp",
                                        "usr",
                                        "var",
                                        "var/cache",
                                        "var/lib",
                                        "var/log",
                                        "var/tmp",
                                        "workspace"};

struct Mount {
  const char* type;
  std::string target;
  unsigned long flags;
  std::string options;
};

void mount_new(const Mount& wanted) {
  if (mount(wanted.type, wanted.target.c_str(), wanted.type, wanted.flags,
            wanted.options.c_str()) != 0) {
    base::throw_allowance(std::string("mount ") + wanted.type + " at " + wanted.target,
                          "fs.mount-max");
  }
}

void show_at(const std::string& source, const std::string& target) {
  base::check_allowance(mount(source.c_str(), target.c_str(), nullptr, MS_BIND | MS_REC, nullptr),
                        "show " + source, "fs.mount-max");
}

// Flags that a remount must repeat: those that are on are locked in a user namespace.
unsigned long locked_flags(const std::string& path) {
  struct statvfs status {};
  base::check(statvfs(path.c_str(), &status), "inspect " + path);
  unsigned long flags = 0;
  if (status.f_flag & ST_NODEV) flags |= MS_NODEV;
  if (status.f_flag & ST_NOSUID) flags |= MS_NOSUID;
  if (status.f_flag & ST_NOEXEC) flags |= MS_NOEXEC;
  if (status.f_flag & ST_NOATIME) flags |= MS_NOATIME;
  if (status.f_flag & ST_NODIRATIME) flags |= MS_NODIRATIME;
  if (status.f_flag & ST_RELATIME) flags |= MS_RELATIME;
  return flags;
}

// The mount at `target` and all below it.
void make_read_only(const std::string& target) {
  for (const auto& line : base::parse_mounts(base::read_file("/proc/self/mountinfo"))) {
    if (line.target != target && !line.target.starts_with(target + "/")) continue;
    const unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY | kData;
    if (mount(nullptr, line.target.c_str(), nullptr, flags | locked_flags(line.target), nullptr) !=
        0)
      base::throw_errno("make " + line.target + " read-only");
  }
}

void bind_read_only(const std::string& source, const std::string& target) {
  show_at(source, target);
  make_read_only(target);
}

void make_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) base::throw_errno("make " + path);
}

void make_file(const std::string& path, std::string_view content) {
  const Fd file = base::open_file(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  base::write_all(file.get(), content);
}

std::string read_link(const std::string& path) {
  char target[4096];
  const ssize_t size = base::check(readlink(path.c_str(), target, sizeof target), "read " + path);
  return std::string(target, static_cast<size_t>(size));
}

// Shows one file, directory or link of the machine at the same path, if it exists.
void show(const std::string& path, const std::string& root) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return;
  const std::string target = root + path;
  base::make_directories(target.substr(0, target.rfind('/')), 0755);
  if (S_ISLNK(status.st_mode)) {
    base::check(symlink(read_link(path).c_str(), target.c_str()), "link " + target);
    return;
  }
  // Not for everybody: then not for a sandbox either.
  if ((status.st_mode & S_IROTH) == 0) return;
  if (S_ISDIR(status.st_mode)) {
    make_directory(target);
  } else {
    make_file(target, {});
  }
  bind_read_only(path, target);
}

// A merged /usr has links to it; others have directories.
void show_programs(const std::string& root) {
  bind_read_only("/usr", root + "/usr");
  for (const std::string& name : base::list_directory("/")) {
    if (name == "bin" || name == "sbin" || name.starts_with("lib")) show("/" + name, root);
  }
}

void show_etc(const std::string& root) {
  for (const char* name : shown_etc()) show(std::string("/etc/") + name, root);
  for (const TextFile& file : text_files()) make_file(root + "/" + file.path, file.content);
}

// A file of the machine that is seen in the root, through one link at most, as distributions have
// it. Empty: none.
std::string shown_file(const std::string& path, const std::string& root) {
  struct stat status {};
  std::string target = root + path;
  if (lstat(target.c_str(), &status) != 0) return {};
  if (S_ISLNK(status.st_mode)) {
    const std::string link = read_link(target);
    target = link.starts_with('/') ? root + link : target.substr(0, target.rfind('/') + 1) + link;
    if (link.find("..") != std::string::npos || lstat(target.c_str(), &status) != 0) return {};
  }
  return S_ISREG(status.st_mode) ? target : std::string();
}

// Programs read them where they read the machine's.
void show_certificates(const std::string& source, const std::string& root) {
  bind_read_only(source, root + base::kCertificatesInside);
  const auto replace = [&](const char* place, const char* file) {
    const std::string target = shown_file(place, root);
    if (!target.empty()) bind_read_only(source + "/" + file, target);
  };
  for (const char* place : base::kBundles) replace(place, base::kAllCertificates);
  for (const char* place : base::kJavaStores) replace(place, base::kJavaCertificates);
}

std::string owner_options(const RootPlan& plan) {
  if (plan.overlay == OverlayKind::user) return "";
  const std::string id = std::to_string(kFirstId);
  return ",uid=" + id + ",gid=" + id;
}

void mount_memory(const RootPlan& plan, const std::string& root) {
  struct sysinfo memory {};
  sysinfo(&memory);
  uint64_t size = std::min<uint64_t>(memory.totalram * memory.mem_unit / 4, kMaxMemoryFiles);
  if (plan.limits.memory_bytes > 0) size = std::min(size, plan.limits.memory_bytes / 2);
  const std::string options =
      "size=" + std::to_string(size) + ",nr_inodes=262144" + owner_options(plan);
  for (const char* path : {"/tmp", "/var/tmp", "/dev/shm"})
    mount_new({"tmpfs", root + path, kData, options + ",mode=1777"});
  mount_new({"tmpfs", root + "/run", kData, options + ",mode=755"});
  mount_new({"tmpfs", root + "/root", kData, options + ",mode=700"});
}

// So that programs inside size themselves by the sandbox. On a machine with version 1 next to
// version 2, the unified hierarchy has no controllers: the other places tell more.
void show_limits(const RootPlan& plan, const std::string& root) {
  if (!plan.processors.empty() && base::path_exists(base::kOnlineProcessors)) {
    const std::string file = plan.sandbox + "/processors";
    make_file(file, base::processors_text(plan.processors) + "\n");
    bind_read_only(file, root + base::kOnlineProcessors);
  }
  for (const auto& [group, place] : make_groups(plan.sandbox, plan.limits)) {
    base::make_directories(root + place, 0755);
    bind_read_only(group, root + place);
  }
}

void make_devices(const std::string& root) {
  for (const char* name : kDevices) {
    const std::string path = std::string("/dev/") + name;
    if (!base::path_exists(path)) continue;
    make_file(root + path, {});
    show_at(path, root + path);
  }
  for (const auto& [name, target] : {std::pair("fd", "/proc/self/fd"),
                                     {"stdin", "/proc/self/fd/0"},
                                     {"stdout", "/proc/self/fd/1"},
                                     {"stderr", "/proc/self/fd/2"},
                                     {"ptmx", "pts/ptmx"}}) {
    const std::string path = root + "/dev/" + name;
    base::check(symlink(target, path.c_str()), "link " + path);
  }
}

// By descriptors: a path may hold the characters that separate options.
void mount_overlay(const RootPlan& plan, const std::string& part, const std::string& lower,
                   const std::string& target) {
  const Fd below = base::open_file(lower, O_PATH | O_DIRECTORY);
  const Fd upper = base::open_file(plan.sandbox + "/" + part + "/upper", O_PATH | O_DIRECTORY);
  const Fd work = base::open_file(plan.sandbox + "/" + part + "/work", O_PATH | O_DIRECTORY);
  const auto path = [](const Fd& fd) { return "/proc/self/fd/" + std::to_string(fd.get()); };
  std::string options =
      "lowerdir=" + path(below) + ",upperdir=" + path(upper) + ",workdir=" + path(work);
  options += plan.overlay == OverlayKind::root
                 ? ",index=off,nfs_export=off,xino=off,redirect_dir=on,metacopy=off"
                 : ",index=off,nfs_export=off,xino=off,userxattr";
  mount_new({"overlay", target, kData, options});
  struct statvfs status {};
  base::check(statvfs(target.c_str(), &status), "inspect " + target);
  // If overlay cannot use its work directory, it silently comes up read-only.
  if (status.f_flag & ST_RDONLY)
    throw Error(Code::io, "the overlay at " + target + " is read-only; is the disk full?");
}

void mask_proc() {
  for (const char* name : kMaskedFiles) {
    const std::string path = std::string("/proc/") + name;
    if (base::path_exists(path)) show_at("/dev/null", path);
  }
  for (const char* name : kMaskedDirectories) {
    const std::string path = std::string("/proc/") + name;
    if (base::path_exists(path))
      mount_new({"tmpfs", path, kData | MS_NOEXEC | MS_RDONLY, "size=4k,nr_inodes=2,mode=755"});
  }
}

}  // namespace

const char* overlay_name(OverlayKind overlay) {
  if (overlay == OverlayKind::none) return "none";
  return overlay == OverlayKind::root ? "root" : "user";
}

OverlayKind overlay_of(std::string_view name) {
  if (name == "none") return OverlayKind::none;
  return name == "root" ? OverlayKind::root : OverlayKind::user;
}

std::string root_place(const std::string& sandbox) { return sandbox + "/root"; }

void build_root(const RootPlan& plan) {
  umask(022);
  base::check(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), "separate the mounts");
  const std::string root = root_place(plan.sandbox);
  mount_new({"tmpfs", root, kData, "size=8m,nr_inodes=4096,mode=755" + owner_options(plan)});
  for (const char* path : kDirectories) make_directory(root + "/" + path);
  show_programs(root);
  show_etc(root);
  for (const char* path : {"/sys/devices/system/cpu", "/sys/devices/system/node"}) show(path, root);
  show_limits(plan, root);
  mount_memory(plan, root);
  make_devices(root);
  mount_overlay(plan, "tree", plan.tree, root + "/workspace");
  mount_overlay(plan, "home", plan.sandbox + "/empty", root + "/home/user");
  if (!plan.objects.empty()) bind_read_only(plan.objects, root + "/.moorage/objects");
  if (!plan.certificates.empty()) show_certificates(plan.certificates, root);
}

void enter_root(bool terminal_group) {
  // While the machine's /proc is seen: the kernel refuses a user namespace a new one that shows
  // more.
  mount_new({"proc", "proc", kData | MS_NOEXEC, ""});
  mount_new({"devpts", "dev/pts", MS_NOSUID | MS_NOEXEC,
             std::string("newinstance,ptmxmode=0666,mode=620,max=64") +
                 (terminal_group ? ",gid=5" : "")});
  // pivot_root(2), "pivot_root(".", ".")": the old root is stacked below the new one, then
  // unmounted.
  base::check(syscall(SYS_pivot_root, ".", "."), "change the root");
  base::check(umount2(".", MNT_DETACH), "leave the old root");
  base::check(chdir("/"), "change to the new root");
  mask_proc();
  const unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY | kData;
  base::check(mount(nullptr, "/", nullptr, flags, nullptr), "make the root read-only");
}

}  // namespace moorage::outpost
