#include "layers/mounter.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <exception>
#include <future>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/os/mount.h"

namespace moorage::layers {
namespace {

constexpr auto kDeadline = std::chrono::seconds(30);
constexpr char kWritable[] = "w";
constexpr std::string_view kLetters =
    "abcdefghijklmnopqrstuvxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
static_assert(kLetters.size() == Mounter::kMaxLowers);
// fsconfig(2) takes 255 bytes for a value, and lowerdir is one value: "a:b:c".
static_assert(2 * Mounter::kMaxLowers < 256);

// Order: first the copies of the host's mounts become slaves, so that unmounting them here affects
// nobody; then pivot_root leaves them. An initial ramfs as root cannot be left (EINVAL): there the
// copies stay, and as slaves they follow the host's own umounts.
void leave_host_mounts(const std::string& place) {
  base::check_allowance(unshare(CLONE_FS | CLONE_NEWNS), "create a mount namespace",
                        "user.max_mnt_namespaces or fs.mount-max");
  base::set_propagation_slave("/");
  Fd room = base::make_file_system("tmpfs", {{"size", "64k"}, {"mode", "0700"}},
                                   {.nosuid = true, .nodev = true, .noexec = true});
  base::attach_mount(room.get(), place);
  base::check(fchdir(room.get()), "enter a new tmpfs");
  if (syscall(SYS_pivot_root, ".", ".") == 0) {
    // The old root now lies on top of the new one, at ".".
    base::check(umount2(".", MNT_DETACH), "detach the copy of the host's mounts");
  } else if (errno != EINVAL) {
    base::throw_errno("change the root with pivot_root");
  }
}

// An overlay writes as the user who mounted it. User 0, or CAP_SYS_RESOURCE, could use the blocks
// that ext4 reserves and exceed every quota: an agent could take the space that the daemon needs to
// keep running. `identity` belongs to nobody. Leaving user 0 drops the file capabilities that the
// overlay needs, so they are set again. Affects only this thread.
void become(uint32_t identity) {
  syscall(SYS_setfsgid, identity);
  syscall(SYS_setfsuid, identity);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  base::check(syscall(SYS_capget, &header, sets.data()), "read the capabilities of a thread");
  sets.at(CAP_TO_INDEX(CAP_SYS_RESOURCE)).permitted &= ~CAP_TO_MASK(CAP_SYS_RESOURCE);
  for (auto& set : sets) set.effective = set.permitted;
  base::check(syscall(SYS_capset, &header, sets.data()), "set the capabilities of a thread");
  // The first two calls report no refusal; a second call returns the current id.
  if (syscall(SYS_setfsuid, -1) != static_cast<long>(identity) ||
      syscall(SYS_setfsgid, -1) != static_cast<long>(identity)) {
    throw Error(Code::internal, "cannot act as user " + std::to_string(identity));
  }
}

void make_mount_points() {
  base::check(mkdir(kWritable, 0700), "create a mount point");
  for (char letter : kLetters) {
    base::check(mkdir(std::string(1, letter).c_str(), 0700), "create a mount point");
  }
}

// Attaches the layers of one overlay under their letters. The overlay keeps private copies of the
// mounts, so the letters are free again afterwards. A lazy umount of a mount that we attached
// ourselves cannot fail.
class AttachedLayers {
 public:
  ~AttachedLayers() {
    for (const std::string& name : names_) {
      [[maybe_unused]] int result = umount2(name.c_str(), MNT_DETACH);
      assert(result == 0);
    }
  }
  void attach(const Fd& mount, const std::string& name) {
    base::attach_mount(mount.get(), name);
    names_.push_back(name);
  }

 private:
  std::vector<std::string> names_;
};

// Acts as another user during its lifetime.
class Identity {
 public:
  Identity(uint32_t now, uint32_t afterwards) : afterwards_(afterwards) { become(now); }
  // A failure ends the process: nothing may be mounted as 0.
  ~Identity() { become(afterwards_); }  // NOLINT(bugprone-exception-escape)
  Identity(Identity&&) = delete;

 private:
  const uint32_t afterwards_;
};

// Sets every option whose default could differ. xino=off: the layers share one file system, so
// inode numbers are the real ones anyway, and the result does not depend on how many spare bits the
// file system has.
Fd assemble(const OverlayParts& parts) {
  AttachedLayers attached;
  std::string lowers;
  for (size_t i = 0; i < parts.lowers.size(); ++i) {
    const std::string name(1, kLetters[i]);
    attached.attach(parts.lowers[i], name);
    lowers += lowers.empty() ? name : ":" + name;
  }
  attached.attach(parts.writable, kWritable);
  const std::string writable = kWritable;
  return base::make_file_system("overlay",
                                {{"lowerdir", lowers},
                                 {"upperdir", writable + "/upper"},
                                 {"workdir", writable + "/work"},
                                 {"redirect_dir", "on"},
                                 {"index", "off"},
                                 {"nfs_export", "off"},
                                 {"metacopy", "off"},
                                 {"xino", "off"}},
                                {.nosuid = true, .nodev = true});
}

}  // namespace

Mounter::Mounter(const std::string& place, uint32_t identity) : identity_(identity) {
  std::promise<void> ready;
  thread_ = std::thread([this, &place, &ready] {
    // Other threads handle the daemon's signals.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    try {
      leave_host_mounts(place);
      make_mount_points();
      become(identity_);
    } catch (...) {
      ready.set_exception(std::current_exception());
      return;
    }
    ready.set_value();
    serve();
  });
  try {
    ready.get_future().get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

Mounter::~Mounter() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_one();
  thread_.join();
}

Fd Mounter::mount(OverlayParts parts) {
  assert(!parts.lowers.empty());
  if (parts.lowers.size() > kMaxLowers) {
    throw Error(Code::resource_exhausted,
                "cannot mount a chain of more than " + std::to_string(kMaxLowers) + " layers");
  }
  std::packaged_task<Fd()> task([this, queued = std::move(parts)]() mutable {
    const OverlayParts now = std::move(queued);  // released before the caller continues
    std::optional<Identity> other;
    if (now.as_root) other.emplace(0, identity_);
    return assemble(now);
  });
  std::future<Fd> answer = task.get_future();
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
  }
  arrived_.notify_one();
  if (answer.wait_for(kDeadline) != std::future_status::ready) {
    throw Error(Code::deadline_exceeded, "mounting an overlay took longer than 30 s",
                "check the kernel's log for a hanging disk");
  }
  return answer.get();
}

void Mounter::serve() {
  for (;;) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::packaged_task<Fd()> task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    task();
  }
}

}  // namespace moorage::layers
