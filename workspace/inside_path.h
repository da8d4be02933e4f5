// Paths as the sandbox sees them, found from the host. A link that an agent wrote means what it
// means inside: "/workspace/x" is x of the tree, "/home/user/x" is x of the home, anything else is
// not the workspace's. The kernel cannot tell: on the host each of them is a mount of its own, and
// an absolute link resolved in its root would name another file.
#pragma once

#include <string>
#include <vector>

namespace moorage::workspace {

struct InsideRoot {
  std::string path;  // inside: "/workspace"
  int fd = -1;       // the mount's root; borrowed
};

// A root, and a path below it without links, "." and ".."; empty is the root itself.
struct InsidePlace {
  int root = -1;
  std::string path;
};

// `path` is inside and absolute, or relative to the first root. A part that is not there, or is no
// directory, ends the search: the rest is left for open to refuse. Links may change meanwhile, so
// open the place with base::open_in_root. invalid_argument: outside every root, too many links.
InsidePlace find_inside(const std::vector<InsideRoot>& roots, const std::string& path,
                        bool follow_last);

// The way back, to the path inside.
std::string inside_path(const std::vector<InsideRoot>& roots, const InsidePlace& place);

}  // namespace moorage::workspace
