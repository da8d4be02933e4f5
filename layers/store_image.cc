#include "layers/store_image.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/little_endian.h"
#include "base/log.h"
#include "base/os/atomic_file.h"
#include "base/os/files.h"
#include "base/os/process.h"
#include "base/size_text.h"

namespace moorage::layers {
namespace {

MOORAGE_CRASH_POINT(allocated, "image.allocated");
MOORAGE_CRASH_POINT(formatted, "image.formatted");
MOORAGE_CRASH_POINT(named, "image.named");
MOORAGE_CRASH_POINT(remembered, "image.remembered");

constexpr uint64_t kLeastBytes = 1ULL << 30;
constexpr unsigned long kLoopMajor = 7;
constexpr mode_t kOthersMay = 077;
constexpr const char* kUnfinished = ".new";
constexpr const char* kNote = "store-is-in-image";
constexpr std::chrono::minutes kFormatTime{10};
// _IOW('f', 16, __u64) of the kernel's fs/ext4/ext4.h, which is in no header for programs.
constexpr unsigned long kResizeExt4 = _IOW('f', 16, uint64_t);

struct FileId {
  dev_t device;
  ino_t inode;
  friend bool operator==(const FileId&, const FileId&) = default;
};

FileId id_of(const struct stat& status) { return {status.st_dev, status.st_ino}; }

struct stat status_of(const Fd& file, const std::string& path) {
  struct stat status {};
  base::check(fstat(file.get(), &status), "check " + path);
  return status;
}

std::string directory_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Allocates the whole size at once: writes to the image must not meet a full disk below it.
void allocate(int file, uint64_t bytes, const std::string& path) {
  const int error = posix_fallocate(file, 0, static_cast<off_t>(bytes));
  if (error == 0) return base::sync_file(file, path);
  if (error != ENOSPC && error != EDQUOT && error != EFBIG) base::throw_errno("use " + path, error);
  const auto free = base::file_system_space(directory_of(path)).free_bytes;
  throw Error(Code::resource_exhausted,
              "no room for an image of " + base::size_text(bytes) + " in " + directory_of(path) +
                  ", which has " + base::size_text(free) + " free",
              "make room there, or set a smaller store.image_bytes");
}

// Multiple mount protection, and twice as many inodes as usual: trees have small files.
void format(const std::string& path) {
  base::ProcessOptions process;
  process.environment = {{"LC_ALL", "C"}};
  process.deadline = kFormatTime;
  const auto made = base::run_process(
      {"mke2fs", "-q", "-F", "-t", "ext4", "-O", "mmp", "-i", "8192", "-m", "1", path}, process);
  if (made.ok()) return;
  throw Error(Code::unsupported, "mke2fs could not format " + path + ": " + made.error,
              "check that e2fsprogs is installed");
}

void make_image(const StoreImageOptions& options) {
  const std::string leftover = options.image + kUnfinished;
  if (unlink(leftover.c_str()) < 0 && errno != ENOENT) base::throw_errno("remove " + leftover);
  base::AtomicFile file(options.image, {.suffix = kUnfinished, .replaces = false});
  allocate(file.fd(), options.bytes, file.temporary());
  allocated.pass();
  format(file.temporary());
  file.sync();
  formatted.pass();
  file.commit_durable();
  named.pass();
}

void refuse_unsafe(const struct stat& status, const std::string& path) {
  if (!S_ISREG(status.st_mode))
    throw Error(Code::invalid_argument, path + " is not a regular file",
                "set store.image to a file; it is created if missing");
  if (status.st_uid != 0 || (status.st_mode & kOthersMay) != 0)
    throw Error(Code::permission_denied, "users other than root can use " + path,
                "chown root: " + path + " && chmod 600 " + path);
}

Fd open_device(const std::string& name, int flags) {
  const std::string path = "/dev/" + name;
  Fd device(::open(path.c_str(), flags | O_CLOEXEC));
  if (!device && errno == ENOENT)
    throw Error(Code::unsupported, path + " does not exist",
                "store.image needs loop devices: run modprobe loop, or pass them to the container");
  base::check(device.get(), "open " + path);
  return device;
}

std::optional<FileId> file_behind(const Fd& device) {
  loop_info64 info{};
  if (ioctl(device.get(), LOOP_GET_STATUS64, &info) < 0) return std::nullopt;
  return FileId{info.lo_device, info.lo_inode};
}

struct Device {
  std::string name;  // "loop3"
  Fd fd;
};

// Finds a device that already has the image, so that the kernel recognizes the file system if it is
// also mounted elsewhere, such as in a sandbox.
std::optional<Device> find_device(const FileId& image) {
  for (const auto& name : base::list_directory("/sys/block")) {
    if (!name.starts_with("loop") || !base::path_exists("/sys/block/" + name + "/loop")) continue;
    Fd device(::open(("/dev/" + name).c_str(), O_RDWR | O_CLOEXEC));
    if (device && file_behind(device) == image) return Device{name, std::move(device)};
  }
  return std::nullopt;
}

Device attach(const Fd& locked, const std::string& path) {
  // The device keeps the open file that it gets, including its lock, so give it another one.
  const Fd image =
      base::open_file("/proc/self/fd/" + std::to_string(locked.get()), O_RDWR | O_NONBLOCK);
  const Fd control = open_device("loop-control", O_RDWR);
  uint32_t flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;
  for (;;) {
    const int number =
        base::check(ioctl(control.get(), LOOP_CTL_GET_FREE), "find a free loop device");
    const std::string name = "loop" + std::to_string(number);
    Fd device = open_device(name, O_RDWR);
    loop_config config{};
    config.fd = static_cast<uint32_t>(image.get());
    config.info.lo_flags = flags;
    strncpy(reinterpret_cast<char*>(config.info.lo_file_name), path.c_str(), LO_NAME_SIZE - 1);
    if (ioctl(device.get(), LOOP_CONFIGURE, &config) == 0) return {name, std::move(device)};
    if (errno == EBUSY) continue;  // another process took it
    // Not every file system allows direct I/O.
    if (errno == EINVAL && (flags & LO_FLAGS_DIRECT_IO) != 0) {
      flags = LO_FLAGS_AUTOCLEAR;
      continue;
    }
    base::throw_errno("put " + path + " on /dev/" + name);
  }
}

bool has_mounted(const std::string& directory, const FileId& image) {
  struct stat status {};
  if (stat(directory.c_str(), &status) < 0 || major(status.st_dev) != kLoopMajor) return false;
  const Fd device(
      ::open(("/dev/loop" + std::to_string(minor(status.st_dev))).c_str(), O_RDONLY | O_CLOEXEC));
  return device && file_behind(device) == image;
}

void require_empty(const std::string& directory) {
  for (const auto& name : base::list_directory(directory)) {
    if (name == kNote) continue;
    throw Error(Code::conflict,
                directory + " is not empty: " + name + " would be hidden by the image",
                name == "state.db" ? "this is a store without an image: leave store.image empty, "
                                     "or move it away"
                                   : "move it away, or choose another store.directory");
  }
}

void mount_device(const std::string& name, const StoreImageOptions& options) {
  const std::string device = "/dev/" + name;
  base::log(base::LogLevel::info, "storage.mounting",
            {{"image", options.image}, {"device", device}, {"on", options.directory}});
  if (mount(device.c_str(), options.directory.c_str(), "ext4", MS_NODEV, "errors=remount-ro") == 0)
    return;
  const int reason = errno;
  if (reason == EBUSY)
    throw Error(Code::conflict, options.image + " is mounted elsewhere",
                "perhaps on another host; `dmesg` shows ext4's report (MMP)");
  throw Error(Code::io, "cannot mount " + options.image + ": " + strerrordesc_np(reason),
              "`dmesg` shows why; run `e2fsck -f " + options.image + "` to check it");
}

// From the superblock, little endian, as in the kernel's fs/ext4/ext4.h: s_blocks_count_lo,
// s_log_block_size, s_blocks_count_hi.
uint64_t size_of_ext4(const Fd& device) {
  constexpr uint64_t kSuperblock = 1024;
  const std::string bytes = base::read_at(device.get(), 1024, kSuperblock);
  const auto number = [&](size_t at) {
    return uint64_t{base::number_at<uint32_t>(bytes.data() + at)};
  };
  if (bytes.size() < 1024) throw Error(Code::io, "the image has no superblock");
  return ((number(0x150) << 32) + number(0x4)) * (kSuperblock << number(0x18));
}

// Runs while mounted and in ext4's journal: a crash leaves the old or the new size. If it is
// refused (it takes CAP_SYS_RESOURCE), the store keeps its size. The last group, of 128 MiB, may be
// too small for use.
void grow_file_system(const Device& device, const StoreImageOptions& options) {
  constexpr uint64_t kGroup = 128ULL << 20;
  if (size_of_ext4(device.fd) + kGroup >= options.bytes) return;
  struct statfs status {};
  base::check(statfs(options.directory.c_str(), &status), "check " + options.directory);
  uint64_t blocks = options.bytes / static_cast<uint64_t>(status.f_bsize);
  const Fd top = base::open_directory(options.directory);
  if (ioctl(top.get(), kResizeExt4, &blocks) == 0) {
    base::log(base::LogLevel::info, "storage.grown",
              {{"image", options.image}, {"bytes", options.bytes}});
    return;
  }
  const int reason = errno;
  base::log(base::LogLevel::error, "storage.not_grown",
            {{"image", options.image},
             {"bytes", options.bytes},
             {"error", strerrordesc_np(reason)},
             {"effect", "the store keeps its size; grow it with `resize2fs`"}});
}

std::string note_text(const std::string& image) {
  return image +
         "\nholds this store (store.image). Without it a new, empty store would begin here.\n";
}

// The image that the store had before.
std::optional<std::string> noted_image(const std::string& directory) {
  const auto note = base::read_file_if_exists(directory + "/" + kNote);
  return note ? std::optional(note->substr(0, note->find('\n'))) : std::nullopt;
}

}  // namespace

bool StoreImage::is_mounted(const StoreImageOptions& options) {
  struct stat status {};
  return lstat(options.image.c_str(), &status) == 0 &&
         has_mounted(options.directory, id_of(status));
}

StoreImage StoreImage::open(const StoreImageOptions& options) {
  StoreImage opened;
  base::make_directories(options.directory);
  if (options.image.empty()) {
    const auto image = noted_image(options.directory);
    if (!image) return opened;
    // An empty store would look like lost work.
    throw Error(Code::conflict, "the store of " + options.directory + " is in " + *image,
                "set store.image: " + *image + " (or remove " + options.directory + "/" + kNote +
                    " for a new, empty store)");
  }
  if (options.image.starts_with(options.directory + "/"))
    throw Error(Code::invalid_argument,
                options.image + " would be hidden by its own mount on " + options.directory,
                "keep it beside store.directory, not in it");
  if (options.bytes < kLeastBytes)
    throw Error(Code::invalid_argument,
                "store.image_bytes is " + base::size_text(options.bytes) +
                    "; it must be at least " + base::size_text(kLeastBytes),
                "set its size, such as 64GiB; all of it is allocated at once");
  if (!base::path_exists(options.image)) {
    if (const auto image = noted_image(options.directory))
      throw Error(Code::not_found, options.image + " is missing, but the store was in " + *image,
                  "mount the image's file system; or, for a new, empty store, remove " +
                      options.directory + "/" + kNote);
    require_empty(options.directory);
    make_image(options);
  }
  opened.file_ = base::open_file(options.image, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
  const struct stat status = status_of(opened.file_, options.image);
  refuse_unsafe(status, options.image);
  if (!base::lock_file(opened.file_.get(), options.image))
    throw Error(Code::conflict, options.image + " is in use by another mooraged",
                "only one may own a store: stop the other one, or choose another file");
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size > options.bytes)
    throw Error(Code::invalid_argument,
                options.image + " has " + base::size_text(size) + " and cannot shrink",
                "set store.image_bytes: " + std::to_string(size));
  if (size < options.bytes) allocate(opened.file_.get(), options.bytes, options.image);
  const FileId image = id_of(status);
  auto device = find_device(image);
  if (device) base::check(ioctl(device->fd.get(), LOOP_SET_CAPACITY), "grow /dev/" + device->name);
  if (!has_mounted(options.directory, image)) {
    require_empty(options.directory);
    const std::string note = options.directory + "/" + kNote;
    if (base::read_file_if_exists(note) != note_text(options.image))
      base::write_file_durable(note, note_text(options.image));
    remembered.pass();
    if (!device) device = attach(opened.file_, options.image);
    mount_device(device->name, options);
  }
  grow_file_system(*device, options);
  base::check(chmod(options.directory.c_str(), 0700), "set the mode of " + options.directory);
  return opened;
}

}  // namespace moorage::layers
