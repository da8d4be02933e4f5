// Resolves paths on the host as the sandbox sees them. A link that an agent wrote has its meaning
// from inside: "/workspace/x" is x of the tree, "/home/user/x" is x of the home, anything else is
// outside the workspace. The kernel cannot resolve these: on the host each root is its own mount,
// and an absolute link resolved in its root would name another file.
#pragma once

#include <string>
#include <vector>

namespace moorage::layers {

struct InsideRoot {
  std::string path;  // inside: "/workspace"
  int fd = -1;       // the mount's root; borrowed
};

// A root, and a path below it without links, "." and ".."; an empty path is the root itself.
struct InsidePlace {
  int root = -1;
  std::string path;
};

// `path` is an absolute path inside, or relative to the first root. A missing part, or one that is
// not a directory, ends the search; open() then refuses the rest. Links may change meanwhile: use
// base::open_in_root. Throws invalid_argument: outside every root, or too many links.
InsidePlace find_inside(const std::vector<InsideRoot>& roots, const std::string& path,
                        bool follow_last);

// The reverse: the path inside.
std::string inside_path(const std::vector<InsideRoot>& roots, const InsidePlace& place);

}  // namespace moorage::layers
