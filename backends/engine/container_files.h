// Files inside a container made by an engine that take the place of its image's. All input is
// hostile: an image may contain anything.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/os/process.h"

namespace moorage::backends {

using ShownFiles = std::vector<std::pair<std::string, std::string>>;  // on the host, and inside

// `root`: a descriptor of the container's. Empty: there is no such file. At most `max_bytes` of it.
std::optional<std::string> read_inside(int root, const std::string& path, size_t max_bytes);

// The image's own bundles of authorities with ours added, as copies in `directory`, and our store
// for Java; `certificates`: the directory that trust.h describes. Only where the image has such a
// file: its root is read-only.
ShownFiles write_trust(const base::ProcessIdentity& init, const std::string& certificates,
                       const std::string& directory);

}  // namespace moorage::backends
