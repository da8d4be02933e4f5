#include "workspace/layer_merge.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/log.h"
#include "workspace/base_view.h"
#include "workspace/layer_walk.h"
#include "workspace/node_copy.h"

namespace moorage::workspace {
namespace {

using base::Code;
using base::Error;
using base::Fd;

std::string join(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

UpperDirectory parent_of(const UpperDirectory& source) {
  const size_t slash = source.path.rfind('/');
  return {source.layer, slash == std::string::npos ? "" : source.path.substr(0, slash)};
}

std::string name_of(const UpperDirectory& source) {
  return source.path.substr(source.path.rfind('/') + 1);
}

class Merge {
 public:
  explicit Merge(const MergeParts& parts)
      : base_(parts.base.empty() ? std::nullopt
                                 : std::optional<BaseView>(BaseView(parts.deltas, parts.base))),
        walk_(parts.uppers, [this](const std::string& path) { return is_directory(path); }),
        root_(base::open_directory(parts.merged)) {}

  MergeResult run() {
    MergedDirectory root = walk_.root();
    if (!base_) root.base.reset();
    fill(root, root_);
    give(root, root_);
    if (walk_.truncated()) {
      throw Error(Code::resource_exhausted,
                  "the layers have too many files, or too long paths, to be merged");
    }
    if (walk_.changed_meanwhile())
      throw Error(Code::conflict, "a frozen layer changed while it was merged");
    return result_;
  }

 private:
  struct Below {
    std::string name;
    MergedDirectory directory;
  };

  std::optional<mode_t> look_at_base(const std::string& path) const {
    return base_ ? base_->look(path) : std::nullopt;
  }

  bool is_directory(const std::string& path) const {
    const auto mode = look_at_base(path);
    return mode && S_ISDIR(*mode);
  }

  // The walk's directory is closed before the directories below it are entered: it holds a
  // descriptor for each layer.
  void fill(const MergedDirectory& directory, const Fd& to) {
    std::vector<Below> below;
    {
      LayerWalk::Open open = walk_.open(directory);
      for (const std::string& name : open.names()) {
        auto entry = open.entry(name);
        if (!entry) continue;  // the walk says what was wrong
        ++result_.entries;
        if (entry->kind == EntryKind::directory) {
          below.push_back({name, std::move(entry->directory)});
        } else if (entry->kind == EntryKind::absent) {
          hide(directory, to, name);
        } else {
          take(entry->source, to, join(directory.path, name));
        }
      }
    }
    for (const Below& one : below) {
      base::check(mkdirat(to.get(), one.name.c_str(), 0700), "make a directory of a layer");
      const Fd made = base::open_file_at(to.get(), one.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      fill(one.directory, made);
      give(one.directory, made);
      mark(directory, one, made);
    }
  }

  // A whiteout is only there for what the base has: in a directory that is nowhere below it would
  // be seen as a device.
  void hide(const MergedDirectory& parent, const Fd& to, const std::string& name) {
    if (!parent.base || !look_at_base(join(*parent.base, name))) return;
    base::check(mknodat(to.get(), name.c_str(), S_IFCHR, makedev(0, 0)), "make a whiteout");
  }

  void take(const UpperDirectory& source, const Fd& to, const std::string& path) {
    const std::string name = path.substr(path.rfind('/') + 1);
    const Fd from = walk_.open_directory(parent_of(source));
    if (!from) return;
    const std::string old_name = name_of(source);
    if (linkat(from.get(), old_name.c_str(), to.get(), name.c_str(), 0) == 0) return;
    if (errno != EXDEV && errno != EMLINK && errno != EPERM)
      base::throw_errno("link " + base::escape_for_message(path));
    struct stat status {};
    base::check(fstatat(from.get(), old_name.c_str(), &status, AT_SYMLINK_NOFOLLOW),
                "look at " + base::escape_for_message(path));
    const std::pair inode{source.layer, status.st_ino};
    const auto copied = copied_.find(inode);
    if (copied != copied_.end() &&
        linkat(root_.get(), copied->second.c_str(), to.get(), name.c_str(), 0) == 0) {
      return;
    }
    if (!copy_node({from.get(), to.get(), old_name, name}))
      throw Error(Code::conflict, "a frozen layer changed while it was merged");
    ++result_.copied_files;
    if (status.st_nlink > 1) copied_[inode] = path;
  }

  void give(const MergedDirectory& directory, const Fd& to) {
    if (directory.uppers.empty()) return;
    const Fd from = walk_.open_directory(directory.uppers.front());
    if (!from) return;
    struct stat status {};
    base::check(fstat(from.get(), &status), "look at a directory of a layer");
    copy_directory_attributes(from.get(), to.get(), status);
  }

  // What shows through: the base's directory of the same name, another one, or none.
  static void mark(const MergedDirectory& parent, const Below& one, const Fd& made) {
    std::string redirect;
    bool opaque = false;
    const auto& shown = one.directory.base;
    if (shown && (!parent.base || *shown != join(*parent.base, one.name))) {
      redirect = "/" + *shown;
    } else if (!shown) {
      opaque = parent.base.has_value();
    }
    set_mark(made, "trusted.overlay.opaque", opaque ? "y" : "");
    set_mark(made, "trusted.overlay.redirect", redirect);
  }

  static void set_mark(const Fd& directory, const char* name, const std::string& value) {
    if (value.empty()) {
      if (fremovexattr(directory.get(), name) < 0 && errno != ENODATA)
        base::throw_errno("take a mark off a directory of a layer");
      return;
    }
    base::check(fsetxattr(directory.get(), name, value.data(), value.size(), 0),
                "mark a directory of a layer");
  }

  const std::optional<BaseView> base_;
  LayerWalk walk_;
  const Fd root_;
  std::map<std::pair<size_t, ino_t>, std::string>
      copied_;  // of several names, to its path in root_
  MergeResult result_;
};

}  // namespace

MergeResult merge_layers(const MergeParts& parts) { return Merge(parts).run(); }

}  // namespace moorage::workspace
