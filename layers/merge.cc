#include "layers/merge.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/background.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "base/os/xattr.h"
#include "base/parts.h"
#include "layers/merge_stack.h"
#include "layers/node_copy.h"
#include "layers/overlay_lookup.h"

namespace moorage::layers {
namespace {

constexpr const char* kLinks = "links";  // below MergeParts::work

[[noreturn]] void throw_changed() {
  throw Error(Code::conflict, "a frozen layer changed while it was being merged");
}

void set_mark(int directory, const char* name, const std::string& value) {
  value.empty() ? base::remove_attribute(directory, name)
                : base::write_attribute(directory, name, value);
}

// A base tree as an overlay shows it, read without a mount: a whole tree under deltas, which have
// whiteouts and opaque directories but no redirects. The files are our own; links are not followed.
class BaseView {
 public:
  // Deltas nearest first.
  BaseView(const std::vector<std::string>& deltas, const std::string& tree) {
    for (const std::string& delta : deltas) layers_.push_back(base::open_directory(delta));
    layers_.push_back(base::open_directory(tree));
  }

  // Type and mode of a path ("" is the root). nullopt: it does not exist. Resolves each name in all
  // merged directories, as ovl_lookup() does.
  std::optional<mode_t> find_mode(const std::string& path) const {
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
        if (is_opaque(below.back().get())) break;
      }
      if (!found || (below.empty() && !rest.empty())) return std::nullopt;
      here = std::move(below);
    }
    return found;
  }

 private:
  // nullopt: no such entry.
  static std::optional<mode_t> mode_of(const Fd& directory, const std::string& name) {
    struct stat status {};
    if (fstatat(directory.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
      return status.st_mode;
    if (errno == ENOENT) return std::nullopt;
    base::throw_errno("inspect a file of a base tree");
  }

  std::vector<Fd> layers_;  // nearest first
};

class Merge {
 public:
  explicit Merge(const MergeParts& parts)
      : base_(parts.base.empty() ? std::nullopt
                                 : std::optional<BaseView>(BaseView(parts.deltas, parts.base))),
        layers_(open_uppers(parts.uppers)),
        root_(base::open_directory(parts.merged)),
        work_(base::open_directory(parts.work)),
        stack_(layers_, root_) {}

  MergeResult run() {
    MergeLevel root{
        .name = "", .uppers = {}, .base = {}, .made = KnownDirectory(root_.duplicate())};
    for (size_t layer = 0; layer < layers_.size(); ++layer)
      root.uppers.push_back(upper(layer, layers_[layer].duplicate()));
    if (base_) root.base = "";
    stack_.push(std::move(root));
    while (!stack_.empty()) {
      if (const auto name = stack_.top().next_name()) {
        take(*name);
      } else {
        leave();
      }
    }
    base::remove_tree_at(work_.get(), kLinks);
    return result_;
  }

 private:
  // The entries that the layers have under one name.
  struct Found {
    bool here = false;          // the upper being listed is the one to take it
    const MergedUpper* node{};  // the upper with a file, a link or another non-directory
    std::vector<MergedUpper> directories;
    std::optional<std::string> base;  // of a directory
  };

  static MergedUpper upper(size_t layer, Fd directory) {
    const bool marked = has_marked_whiteouts(directory.get());
    return {layer, KnownDirectory(std::move(directory)), marked};
  }

  std::optional<mode_t> mode_in_base(const std::string& path) const {
    return base_ ? base_->find_mode(path) : std::nullopt;
  }

  // An existing name was already taken: ext4 may return names with the same hash again when a
  // stream continues from a position.
  void take(const std::string& name) {
    Found found = find(name);
    if (!found.here) return;  // the newest upper that has the name takes it, once
    ++result_.entries;
    if (found.node) {
      take_node(*found.node, name);
    } else if (found.directories.empty()) {
      hide(name);
    } else {
      enter(name, std::move(found));
    }
  }

  Found find(const std::string& name) {
    const MergeLevel& level = stack_.top();
    Found found;
    NameLookup lookup(name);
    auto next = level.uppers.begin();
    for (size_t layer = 0; layer < layers_.size() && !lookup.stopped(); ++layer) {
      if (lookup.from_root()) {
        FoundFromRoot there = search_from_root(layers_[layer].get(), lookup);
        if (there.part == NameLookup::Part::directory)
          found.directories.push_back(upper(layer, std::move(there.node.directory)));
        continue;
      }
      while (next != level.uppers.end() && next->layer < layer) ++next;
      if (next == level.uppers.end()) break;
      if (next->layer != layer) continue;
      UpperNode node =
          find_upper_node(next->directory.fd(), lookup.target(), next->marked_whiteouts);
      if (!node.there) continue;
      const bool is_listed = next - level.uppers.begin() == static_cast<ptrdiff_t>(level.listed);
      if (!lookup.seen() && !is_listed) return found;
      const auto part = lookup.take(node);
      if (part == NameLookup::Part::node) found.node = &*next;
      if (part == NameLookup::Part::directory)
        found.directories.push_back(upper(layer, std::move(node.directory)));
    }
    if (!lookup.seen()) throw_changed();
    found.here = true;
    if (!found.directories.empty() && !lookup.stopped()) found.base = base_of(level, lookup);
    return found;
  }

  std::optional<std::string> base_of(const MergeLevel& level, const NameLookup& lookup) const {
    std::optional<std::string> base = lookup.in_base(level.base);
    const auto mode = base ? mode_in_base(*base) : std::nullopt;
    return mode && S_ISDIR(*mode) ? base : std::nullopt;
  }

  // Makes a whiteout only if the base has the name: in a directory outside the base it would show
  // up as a device.
  void hide(const std::string& name) {
    const MergeLevel& level = stack_.top();
    if (!level.base || !mode_in_base(join_path(*level.base, name))) return;
    if (mknodat(level.made.fd(), name.c_str(), S_IFCHR, makedev(0, 0)) < 0 && errno != EEXIST)
      base::throw_errno("mark a deleted file in a layer");
  }

  void take_node(const MergedUpper& from, const std::string& name) {
    const int source = from.directory.fd();
    const int to = stack_.top().made.fd();
    if (linkat(source, name.c_str(), to, name.c_str(), 0) == 0 || errno == EEXIST) return;
    if (errno != EXDEV && errno != EMLINK && errno != EPERM)
      base::throw_errno("link " + base::escape_for_message(name));
    struct stat status {};
    base::check(fstatat(source, name.c_str(), &status, AT_SYMLINK_NOFOLLOW),
                "stat " + base::escape_for_message(name));
    const std::string known = links_name(from.layer, status);
    if (!known.empty() && linkat(work_.get(), known.c_str(), to, name.c_str(), 0) == 0) return;
    if (!copy_node({source, to, name, name})) throw_changed();
    ++result_.copied_files;
    if (!known.empty()) keep_link(to, name, known);
  }

  // A file with several names is copied once. Another link, under its inode number, finds the copy,
  // so this takes no memory. Empty: it has one name.
  static std::string links_name(size_t layer, const struct stat& status) {
    if (status.st_nlink < 2) return {};
    return std::string(kLinks) + "/" + std::to_string(layer) + "-" + std::to_string(status.st_ino);
  }

  void keep_link(int to, const std::string& name, const std::string& known) {
    if (mkdirat(work_.get(), kLinks, 0700) < 0 && errno != EEXIST)
      base::throw_errno("create a directory of a layer");
    // If the old copy has the maximum number of names, further names link to the new copy.
    if (unlinkat(work_.get(), known.c_str(), 0) < 0 && errno != ENOENT)
      base::throw_errno("remove a link to a layer's file");
    base::check(linkat(to, name.c_str(), work_.get(), known.c_str(), 0), "link a layer's file");
  }

  void enter(const std::string& name, Found found) {
    const int to = stack_.top().made.fd();
    if (mkdirat(to, name.c_str(), 0700) < 0) {
      if (errno == EEXIST) return;
      base::throw_errno("create a directory of a layer");
    }
    Fd made = base::open_directory_beneath(to, name);
    stack_.push({.name = name,
                 .uppers = std::move(found.directories),
                 .base = std::move(found.base),
                 .made = KnownDirectory(std::move(made))});
  }

  // Sets owner, mode and times from the newest upper, once nothing more is written to it.
  void leave() {
    const MergeLevel& level = stack_.top();
    const int from = level.uppers.front().directory.fd();
    struct stat status {};
    base::check(fstat(from, &status), "inspect a directory of a layer");
    complete_copy(from, level.made.fd(), status);
    if (stack_.size() > 1) mark(level, stack_.above().base);
    stack_.pop();
  }

  // Marks what shows through: the base's directory of the same name, another one, or nothing.
  static void mark(const MergeLevel& level, const std::optional<std::string>& above) {
    std::string redirect;
    bool opaque = false;
    if (level.base && (!above || *level.base != join_path(*above, level.name))) {
      redirect = "/" + *level.base;
    } else if (!level.base) {
      opaque = above.has_value();
    }
    set_mark(level.made.fd(), "trusted.overlay.opaque", opaque ? "y" : "");
    set_mark(level.made.fd(), "trusted.overlay.redirect", redirect);
  }

  const std::optional<BaseView> base_;
  const std::vector<Fd> layers_;  // newest first
  const Fd root_;
  const Fd work_;
  MergeStack stack_;
  MergeResult result_;
};

}  // namespace

MergeResult merge_layers(const MergeParts& parts) {
  const base::Background background;
  return Merge(parts).run();
}

}  // namespace moorage::layers
