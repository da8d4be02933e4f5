// A thread with its own mount namespace, which assembles overlays and returns them as detached
// descriptors. Kernel 6.1 (stock Debian 12) takes only attached idmapped mounts as layers and has
// no lowerdir+ by descriptor, so the layers need names for a moment: here they get names of one
// letter, in a tmpfs that nobody else sees, and lose them before mount() returns. The host's mount
// table never changes. The thread drops its copy of the host's mounts at the start, so it never
// keeps a file system of the host busy. It stays in the host's user namespace: overlay's marks are
// trusted.* attributes, which no sandbox can write.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/os/fd.h"

namespace moorage::layers {

// Detached mounts, already idmapped, made in the caller's namespace.
struct OverlayParts {
  std::vector<Fd> lowers;  // nearest first, at least one, at most kMaxLowers
  Fd writable;             // a directory that contains upper/ and work/
  // Acts as user 0, so it may use the blocks that ext4 reserves. Never for a sandbox.
  bool as_root = false;
};

class Mounter {
 public:
  static constexpr size_t kMaxLowers = 61;  // letters and digits except the writable layer's

  // `place` is any existing directory; only the thread's own namespace mounts over it.
  // `identity`: the user and group that overlays act as; the layers' id maps must cover it, or user
  // 0 for an overlay with as_root.
  Mounter(const std::string& place, uint32_t identity);
  ~Mounter();
  Mounter(Mounter&&) = delete;

  // One at a time; throws deadline_exceeded after 30 s (a hanging disk). Workspaces need no setuid
  // programs or devices, so the mount has nosuid and nodev. Their programs must run: no noexec.
  Fd mount(OverlayParts parts);

 private:
  void serve();

  const uint32_t identity_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::packaged_task<Fd()>> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace moorage::layers
