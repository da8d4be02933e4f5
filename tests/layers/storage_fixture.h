// A store in a temporary directory with an overlay storage, and a small base tree.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "base/os/files.h"
#include "base/os/mount.h"
#include "layers/overlay.h"

namespace moorage::layers {

constexpr uint32_t kDiskFirstId = 1'900'000'000;
constexpr uint32_t kFirstHostId = 1'000'000'000;
constexpr uint32_t kAgent = 1000;

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    const char* parent = getenv("TMPDIR");
    path_ = std::string(parent ? parent : "/tmp") + "/moorage-storage-XXXXXX";
    if (!mkdtemp(path_.data())) abort();
  }
  explicit TemporaryDirectory(std::string existing) : path_(std::move(existing)) {}
  ~TemporaryDirectory() { base::remove_tree(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string through(const base::Fd& mount, const std::string& path) {
  return "/proc/self/fd/" + std::to_string(mount.get()) + "/" + path;
}

// Runs body in a thread with its own mounts, so that nothing ever stays mounted on the host.
inline void in_own_namespace(const std::function<void()>& body) {
  std::async(std::launch::async, [&body] {
    if (unshare(CLONE_FS | CLONE_NEWNS) < 0) abort();
    base::set_propagation_private("/");
    body();
  }).get();
}

// Base tree: README.md, bin/run (executable), deep/er/file.
struct StorageFixture {
  TemporaryDirectory directory;
  std::unique_ptr<Storage> storage = make_overlay_storage({.store = directory.path()});
  Chain chain;

  StorageFixture() {
    chain.writable = {1};
    chain.base_tree = directory.path() + "/base";
    make_directory("");
    make_file("README.md", "read me\n", 0644);
    make_directory("bin");
    make_file("bin/run", "#!/bin/sh\necho ran\n", 0755);
    make_directory("deep");
    make_directory("deep/er");
    make_file("deep/er/file", "content\n", 0644);
    storage->make_layer(chain.writable);
  }

  void make_directory(const std::string& path) const {
    base::make_directories(chain.base_tree + "/" + path, 0755);
    give(path);
  }
  void make_file(const std::string& path, const std::string& bytes, mode_t mode) const {
    base::write_file(chain.base_tree + "/" + path, bytes, mode);
    give(path);
  }
  void give(const std::string& path) const {
    const std::string full = chain.base_tree + "/" + path;
    if (lchown(full.c_str(), kDiskFirstId + kAgent, kDiskFirstId + kAgent) < 0) abort();
  }

  std::string upper() const { return storage->layer_path(chain.writable) + "/tree/upper"; }
};

}  // namespace moorage::layers
