// Image `host`: the host's own /usr, read-only, over a root synthesised here: empty directories,
// the links of a merged /usr, and an /etc made from a short list. Other files are absent: no
// shadow, keys, machine-id, credentials; of the listed ones, only those every host user may read.
// There is one skeleton per state of the host, named by a digest of its sources, so upgrading the
// host makes a new one while running sandboxes keep theirs. Files belong to host root here and are
// shown idmapped.
#pragma once

#include <mutex>
#include <string>

namespace moorage::backends {

// /etc/hosts of every sandbox, whatever its image.
inline constexpr const char* kHosts =
    "127.0.0.1 localhost sandbox\n::1 localhost sandbox ip6-localhost ip6-loopback\n";

// /etc/resolv.conf of every sandbox: the resolver that moorage-egress answers for.
inline constexpr const char* kResolverFile = "nameserver 127.0.0.53\n";

class HostImage {
 public:
  explicit HostImage(std::string images_directory) : directory_(std::move(images_directory)) {}

  // The skeleton's root directory for the current host; created if missing.
  std::string ensure();

 private:
  const std::string directory_;
  std::mutex mutex_;
};

}  // namespace moorage::backends
