// Image `host`: the host's own /usr, read-only, over a root that is synthesised here: empty
// directories, the links of a merged /usr, and an /etc made from a short list. What is not on the
// list is not inside: no shadow, keys, machine-id, credentials, and of the list only what every
// user of the host may read. One skeleton a state of the host, named by a digest over all it was
// made from, so an upgrade of the host gives a new one while running sandboxes keep theirs. Files
// belong to host root here and are shown idmapped.
#pragma once

#include <mutex>
#include <string>

namespace moorage::backends {

// /etc/hosts of every sandbox, whatever its image.
inline constexpr const char* kHosts =
    "127.0.0.1 localhost sandbox\n::1 localhost sandbox ip6-localhost ip6-loopback\n";

class HostImage {
 public:
  explicit HostImage(std::string images_directory) : directory_(std::move(images_directory)) {}

  // The root directory of the skeleton for the host as it is now; made if missing.
  std::string ensure();

 private:
  const std::string directory_;
  std::mutex mutex_;
};

}  // namespace moorage::backends
