#include "layers/base_view.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "base/os/xattr.h"
#include "base/parts.h"

namespace moorage::layers {
namespace {

bool is_opaque(const Fd& directory) {
  return base::read_attribute(directory.get(), "trusted.overlay.opaque") == "y";
}

// nullopt: no such entry.
std::optional<mode_t> mode_of(const Fd& directory, const std::string& name) {
  struct stat status {};
  if (fstatat(directory.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
    return status.st_mode;
  if (errno == ENOENT) return std::nullopt;
  base::throw_errno("inspect a file of a base tree");
}

}  // namespace

BaseView::BaseView(const std::vector<std::string>& deltas, const std::string& tree) {
  for (const std::string& delta : deltas) layers_.push_back(base::open_directory(delta));
  layers_.push_back(base::open_directory(tree));
}

// Resolves each name in all merged directories, as ovl_lookup() does.
std::optional<mode_t> BaseView::find_mode(const std::string& path) const {
  std::optional<mode_t> found = S_IFDIR | 0755;
  std::vector<Fd> here;
  for (const Fd& layer : layers_) here.push_back(layer.duplicate());
  for (std::string_view rest = path; !rest.empty();) {
    const std::string name(base::take_until(rest, '/'));
    std::vector<Fd> below;
    found.reset();
    for (const Fd& directory : here) {
      const auto mode = mode_of(directory, name);
      if (!mode) continue;
      if (!S_ISDIR(*mode)) {
        if (!found && !S_ISCHR(*mode)) found = mode;
        break;
      }
      if (!found) found = mode;
      below.push_back(base::open_directory_beneath(directory.get(), name));
      if (is_opaque(below.back())) break;
    }
    if (!found || (below.empty() && !rest.empty())) return std::nullopt;
    here = std::move(below);
  }
  return found;
}

}  // namespace moorage::layers
