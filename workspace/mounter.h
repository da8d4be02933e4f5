// A thread with a mount namespace of its own, which puts overlays together and gives them back as
// detached descriptors. Kernel 6.1 (stock Debian 12) takes only attached idmapped mounts as layers
// and has no lowerdir+ by descriptor, so the layers must have names for a moment; here they get
// names of one letter, in a tmpfs that nobody else sees, and lose them before mount() returns. The
// host's mount table never changes. The thread drops its copy of the host's mounts at the start, so
// it never keeps a file system of the host busy. Its user namespace is the host's: overlay's own
// marks are trusted.* attributes, which no sandbox can write.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"

namespace moorage::workspace {

// Detached mounts, already idmapped, made in the caller's namespace.
struct OverlayParts {
  std::vector<base::Fd> lowers;  // nearest first, at least one, at most kMaxLowers
  base::Fd writable;             // of a directory with upper/ and work/ in it
  // Works as user 0, so with the blocks that ext4 keeps for it. Never for a sandbox.
  bool as_root = false;
};

class Mounter {
 public:
  static constexpr size_t kMaxLowers = 61;  // letters and digits but for the writable layer's

  // `place` is any existing directory; it is covered in the thread's own namespace only.
  // `identity`: the user and group that overlays work as; the id maps of the layers must cover it,
  // or user 0 for one as_root.
  Mounter(const std::string& place, uint32_t identity);
  ~Mounter();
  Mounter(const Mounter&) = delete;
  Mounter& operator=(const Mounter&) = delete;

  // One at a time; deadline_exceeded after 30 s (a hanging disk). The answer has nosuid and nodev:
  // nothing in a workspace needs them. Programs in it may be executed, so noexec is not set.
  base::Fd mount(OverlayParts parts);

 private:
  struct Request;
  void serve(uint32_t identity);

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<Request>> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace moorage::workspace
