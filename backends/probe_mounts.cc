#include "backends/probe_mounts.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <thread>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/os/mount.h"
#include "base/os/process.h"

namespace moorage::backends {
namespace {

constexpr uint32_t kRange = 65536;
constexpr uint32_t kProbeHostId = 1'000'000'000;  // any unused range works
constexpr const char* kMarker = "probe";
constexpr const char* kProbePrefix = "/probe.";
constexpr const char* kOtherPlace =
    "keep the store (store.directory) on ext4, XFS or btrfs, or in a file with one: store.image";

// Runs the body in a thread with its own mount namespace, which ends with the thread: afterwards
// all attached mounts are gone, and the host's table never contained them.
template <typename Body>
void in_private_mounts(const Body& body) {
  std::exception_ptr failure;
  std::thread([&] {
    try {
      base::check_allowance(unshare(CLONE_FS | CLONE_NEWNS), "create a mount namespace",
                            "user.max_mnt_namespaces or fs.mount-max");
      base::set_propagation_private("/");
      body();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

void own(const std::string& path, uint32_t id) {
  base::check(lchown(path.c_str(), id, id), "set the owner of " + path);
}

void mount_idmapped(const std::string& path, int id_map) {
  Fd mount = base::clone_mount(path);
  base::set_mount_idmap(mount.get(), id_map);
  base::attach_mount(mount.get(), path);
}

// The steps of a snapshot or fork: a deletion, a re-created directory, and a renamed one.
void change_names(int overlay) {
  base::check(unlinkat(overlay, "gone", 0), "remove a file in an overlay");
  base::check(unlinkat(overlay, "again", AT_REMOVEDIR), "remove a directory in an overlay");
  base::check(mkdirat(overlay, "again", 0755), "re-create a directory in an overlay");
  base::check(renameat(overlay, "before", overlay, "after"), "rename a directory in an overlay");
}

std::string mark(const std::string& path, const char* name) {
  std::array<char, 64> value{};
  const ssize_t size = lgetxattr(path.c_str(), name, value.data(), value.size());
  return size < 0 ? "" : std::string(value.data(), static_cast<size_t>(size));
}

// All code that reads layers relies on these marks.
void require_marks(const std::string& upper) {
  struct stat gone {};
  const std::string lacks =
      lstat((upper + "/gone").c_str(), &gone) < 0 || !S_ISCHR(gone.st_mode) || gone.st_rdev != 0
          ? "whiteouts"
      : mark(upper + "/again", "trusted.overlay.opaque") != "y"        ? "opaque directories"
      : mark(upper + "/after", "trusted.overlay.redirect") != "before" ? "redirects"
                                                                       : "";
  if (lacks.empty()) return;
  throw Error(Code::unsupported, "an overlay on the store's file system does not keep " + lacks,
              kOtherPlace);
}

// Left by a process that was killed during a probe: a live one holds a lock on its own.
void remove_cut_probes(const std::string& store) {
  for (const auto& name : base::list_directory(store)) {
    if (!("/" + name).starts_with(kProbePrefix)) continue;
    const std::string place = store + "/" + name;
    const Fd directory = base::open_directory(place);
    if (flock(directory.get(), LOCK_EX | LOCK_NB) == 0) base::remove_tree(place);
  }
}

}  // namespace

std::string try_idmapped_mount(const std::string& directory) {
  try {
    Fd mount = base::clone_mount(directory);
    Fd id_map = base::make_user_namespace({{0, kProbeHostId, kRange}});
    base::set_mount_idmap(mount.get(), id_map.get());
  } catch (const Error& error) {
    throw Error(
        Code::unsupported, directory + " does not support idmapped mounts: " + error.message(),
        "put /usr and the store on ext4, XFS or btrfs; or the store in an image file: store.image");
  }
  return directory + " supports idmapped mounts";
}

std::string try_own_proc() {
  const base::ProcessResult result =
      base::run_process({"unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork",
                         "mount", "-t", "proc", "proc", "/proc"},
                        {});
  if (!result.ok()) {
    throw Error(Code::unsupported,
                "sandboxes cannot mount their own /proc here: parts of this host's /proc "
                "are hidden, as in a container, or user namespaces are refused",
                "run on the host itself; or let the container nest: LXD and Incus "
                "security.nesting=true, LXC its nesting.conf, Docker --privileged");
  }
  return "sandboxes can mount their own /proc";
}

std::string try_overlay(const std::string& store, uint32_t disk_first_id) {
  remove_cut_probes(store);
  const std::string place = store + kProbePrefix + std::to_string(getpid());
  struct Cleanup {
    const std::string& path;
    ~Cleanup() { base::remove_tree(path); }
  } cleanup{place};
  base::make_directories(place, 0755);
  const Fd at_work = base::open_directory(place);
  base::lock_file(at_work.get(), place);
  for (const char* name : {"", "/l", "/l/again", "/l/before", "/u", "/u/upper", "/u/work"}) {
    base::make_directories(place + name, 0755);
  }
  for (const char* name : {"/l", "/l/again", "/l/before", "/u", "/u/upper"})
    own(place + name, disk_first_id);
  // The mounter's own id on disk: without it the overlay is silently read-only.
  own(place + "/u/work", disk_first_id + kRange);
  for (const char* name : {kMarker, "gone"}) {
    base::write_file(place + "/l/" + name, "lower");
    own(place + "/l/" + name, disk_first_id);
  }

  in_private_mounts([&] {
    Fd id_map = base::make_user_namespace(
        {{disk_first_id, kProbeHostId, kRange}, {disk_first_id + kRange, 0, 1}});
    mount_idmapped(place + "/l", id_map.get());
    mount_idmapped(place + "/u", id_map.get());
    Fd overlay = base::make_file_system("overlay",
                                        {{"lowerdir", place + "/l"},
                                         {"upperdir", place + "/u/upper"},
                                         {"workdir", place + "/u/work"},
                                         {"redirect_dir", "on"},
                                         {"index", "off"},
                                         {"metacopy", "off"}},
                                        {});
    struct stat info;
    Fd file = base::open_file_at(overlay.get(), kMarker, O_RDWR);
    base::check(fstat(file.get(), &info), "inspect the probe's file");
    if (info.st_uid != kProbeHostId) {
      throw Error(Code::unsupported, "an overlay over idmapped layers shows wrong owners",
                  "use Linux 6.1 or later with overlayfs");
    }
    base::write_all(file.get(), "upper");
    change_names(overlay.get());
  });
  if (base::read_file(place + "/l/" + kMarker) != "lower" ||
      base::read_file(place + "/u/upper/" + kMarker) != "upper") {
    throw Error(Code::unsupported, "an overlay wrote to the wrong layer", "");
  }
  require_marks(place + "/u/upper");
  const std::string kind = base::mount_of(store).type;
  return "overlay over idmapped layers works on the store's file system" +
         (kind.empty() ? "" : " (" + kind + ")");
}

}  // namespace moorage::backends
