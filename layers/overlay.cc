#include "layers/overlay.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/os/files.h"
#include "base/os/mount.h"
#include "layers/ids.h"
#include "layers/mounter.h"

namespace moorage::layers {
namespace {

constexpr uint64_t kMountRoom = 64 << 10;  // more than an overlay's work directories take

// Caches user namespaces without processes, which serve as id maps. One costs 0.3 ms to make (a
// fork) and little to keep; a restarted workspace usually gets the same ids. Evicts the oldest
// first.
class IdMaps {
 public:
  // Shared, because a mount may still use an entry that another thread evicts.
  std::shared_ptr<Fd> get(const std::vector<base::IdMapLine>& map) {
    const Key key{map.front().inside, map.front().outside, map.back().outside};
    std::lock_guard lock(mutex_);
    for (auto it = kept_.begin(); it != kept_.end(); ++it) {
      if (it->first != key) continue;
      kept_.splice(kept_.begin(), kept_, it);
      return it->second;
    }
    kept_.emplace_front(key, std::make_shared<Fd>(base::make_user_namespace(map)));
    if (kept_.size() > kMaxKept) kept_.pop_back();
    return kept_.front().second;
  }

 private:
  using Key = std::array<uint32_t, 3>;
  static constexpr size_t kMaxKept = 128;
  std::mutex mutex_;
  std::list<std::pair<Key, std::shared_ptr<Fd>>> kept_;
};

struct Owner {
  uint32_t id;
  mode_t mode;
};

// Idempotent: sets owner and mode even if the directory exists. mkdir alone would apply the umask
// to the mode.
void make_owned_directory(const std::string& path, Owner owner) {
  if (mkdir(path.c_str(), 0700) < 0 && errno != EEXIST) base::throw_errno("make " + path);
  base::check(lchown(path.c_str(), owner.id, owner.id), "change the owner of " + path);
  base::check(chmod(path.c_str(), owner.mode), "set the mode of " + path);
}

// ext4, XFS and btrfs write changes of names and inodes in the order in which they happened: one
// fsync brings all earlier changes to disk (ext4: commits the inode's transaction and all older
// ones; XFS: the log up to the inode's item; btrfs: a logged directory includes its new children
// and parents). Tested on all three: a raw disk copied right after the fsync had every directory,
// and without it none. So on these, nothing needs a sync only for order.
bool keeps_order(const std::string& path) {
  struct statfs status;
  base::check(statfs(path.c_str(), &status), "check the file system of " + path);
  switch (static_cast<unsigned long>(status.f_type)) {
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case TMPFS_MAGIC:
      return true;
    default:
      return false;
  }
}

class OverlayStorage : public Storage {
 public:
  explicit OverlayStorage(OverlayOptions options)
      : options_(std::move(options)),
        layers_(options_.store + "/layers"),
        empty_(options_.store + "/empty"),
        mounter_((base::make_directories(layers_), layers_),
                 options_.disk_first_id + kIdsPerSandbox),
        ordered_(keeps_order(layers_)),
        quota_(probe_disk_quota(layers_, options_.watch_only)) {
    make_owned_directory(empty_, agent_owner());
  }

  std::string name() const override { return "overlay"; }

  std::string layer_path(base::LayerId layer) const override { return layers_ + "/" + layer.str(); }

  void make_layer(base::LayerId layer) override {
    const std::string top = layer_path(layer);
    if (!base::path_exists(top)) quota_->make(layer, top);
    std::vector<std::string> made;
    for (const char* part : {"tree", "home", "system"}) {
      // The kernel maps an id outside the mount's map to the overflow id, and not even the mounter
      // could look up a name below it. So everything from here on has an owner inside the map.
      const std::string directory = top + "/" + part;
      make_owned_directory(directory, mounter_owner());
      make_owned_directory(directory + "/work", mounter_owner());
      make_owned_directory(directory + "/upper", strcmp(part, "system") == 0
                                                     ? Owner{options_.disk_first_id, 0755}
                                                     : agent_owner());
      for (const char* name : {"/work", "/upper", ""}) made.push_back(directory + name);
    }
    if (ordered_) return;
    made.insert(made.end(), {top, layers_});
    for (const std::string& directory : made) base::sync_directory(directory);
  }

  // Where the file system keeps the order of changes, syncing the last one is enough.
  void sync_layer(base::LayerId layer) override {
    if (ordered_) base::sync_directory(layer_path(layer) + "/system/upper");
  }

  bool clones_layer(base::LayerId layer) override { return quota_->clones(layer_path(layer)); }
  void clone_layer(base::LayerId from, base::LayerId to) override {
    quota_->clone(layer_path(from), layer_path(to));
  }

  void remove_layer(base::LayerId layer) override { quota_->remove(layer, layer_path(layer)); }

  DiskQuota& quota() override { return *quota_; }

  ActiveMounts mount(const Chain& chain, uint32_t first_host_id, MountRoom room) override {
    const uint32_t on_disk = mounter_owner().id;
    const uint32_t mounter = room == MountRoom::roots ? 0 : on_disk;
    const std::shared_ptr<Fd> map = id_maps_.get(
        {{options_.disk_first_id, first_host_id, kIdsPerSandbox}, {on_disk, mounter, 1}});
    const Mapping mapping{*map, room};
    ActiveMounts mounts;
    mounts.tree = mount_part(chain, "/tree", tree_below(chain), mapping, &mounts.tree_device);
    mounts.home = mount_part(chain, "/home", {chain.image_home.empty() ? empty_ : chain.image_home},
                             mapping, &mounts.home_device);
    return mounts;
  }

  Fd bind_read_only(const std::string& path, uint32_t first_host_id) override {
    return bind(path, {0, first_host_id, kIdsPerSandbox});
  }

  Fd bind_files(const std::string& path, uint32_t first_host_id) override {
    return bind(path, {options_.disk_first_id, first_host_id, kIdsPerSandbox});
  }

 private:
  Fd bind(const std::string& path, const base::IdMapLine& ids) {
    const std::shared_ptr<Fd> map = id_maps_.get({ids});
    Fd bind = layer_mount(path, *map);
    base::set_mount_attributes(bind.get(),
                               {.read_only = true, .nosuid = true, .nodev = true, .noexec = true});
    return bind;
  }

  Owner agent_owner() const { return {options_.disk_first_id + kUser, 0755}; }
  Owner mounter_owner() const { return {options_.disk_first_id + kIdsPerSandbox, 0700}; }

  // Clones in the caller's namespace, where the store is mounted; the mounter's namespace has none
  // of the host's mounts.
  static Fd layer_mount(const std::string& path, const Fd& map) {
    Fd layer = base::clone_mount(path);
    base::set_mount_idmap(layer.get(), map.get());
    return layer;
  }

  static std::vector<std::string> tree_below(const Chain& chain) {
    std::vector<std::string> below = chain.deltas;
    below.push_back(chain.base_tree);
    return below;
  }

  struct Mapping {
    const Fd& map;
    MountRoom room;
  };

  // `below`: under the layers, nearest first.
  Fd mount_part(const Chain& chain, const std::string& part, const std::vector<std::string>& below,
                const Mapping& mapping, uint64_t* device) {
    const Fd& map = mapping.map;
    OverlayParts parts;
    parts.as_root = mapping.room == MountRoom::roots;
    for (base::LayerId frozen : chain.frozen) {
      parts.lowers.push_back(layer_mount(layer_path(frozen) + part + "/upper", map));
    }
    for (const std::string& path : below) parts.lowers.push_back(layer_mount(path, map));
    parts.writable = layer_mount(layer_path(chain.writable) + part, map);
    const std::string what = "mount " + chain.writable.str() + part;
    try {
      Fd overlay = mounter_.mount(std::move(parts));
      struct statvfs status;
      base::check(fstatvfs(overlay.get(), &status), "inspect the overlay");
      // If overlay cannot use its work directory, it silently comes up read-only.
      if (status.f_flag & ST_RDONLY) {
        if (base::file_system_space(layers_).free_bytes < kMountRoom) {
          throw Error(Code::resource_exhausted, "the disk of the store is full",
                      "free space on it: moorage rm --purge NAME removes a workspace for good");
        }
        throw Error(Code::io, "the overlay was mounted read-only",
                    "see the kernel's log; is the store's file system writable?");
      }
      struct stat root;
      base::check(fstat(overlay.get(), &root), "inspect the overlay");
      *device = root.st_dev;
      return overlay;
    } catch (Error& error) {
      throw error.add_context(what);
    }
  }

  const OverlayOptions options_;
  const std::string layers_;
  const std::string empty_;  // lowest directory of a home, if the image has none
  IdMaps id_maps_;
  Mounter mounter_;
  const bool ordered_;
  const std::unique_ptr<DiskQuota> quota_;
};

}  // namespace

std::unique_ptr<Storage> make_overlay_storage(const OverlayOptions& options) {
  return std::make_unique<OverlayStorage>(options);
}

}  // namespace moorage::layers
