#include "outpost/inside/copy_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "layers/node_copy.h"
#include "packs/merged/roots.h"

namespace moorage::outpost {
namespace {

constexpr int kDirectory = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;

class Copier {
 public:
  explicit Copier(const std::string& to) : top_(base::open_directory(to)) {}

  void copy(const std::string& from) {
    const Fd source = base::open_directory(from);
    copy_directory(source.get(), top_.get(), "", 0);
  }

 private:
  using Inode = std::pair<dev_t, ino_t>;

  void copy_directory(int from, int to, const std::string& path, size_t depth) {
    for (const std::string& name : base::list_directory(from))
      copy_entry(from, to, path.empty() ? name : path + "/" + name, name, depth);
    struct stat status {};
    base::check(fstat(from, &status), "inspect /" + path);
    layers::complete_copy(from, to, status);
  }

  void copy_entry(int from, int to, const std::string& path, const std::string& name,
                  size_t depth) {
    struct stat status {};
    base::check(fstatat(from, name.c_str(), &status, AT_SYMLINK_NOFOLLOW), "inspect " + path);
    if (S_ISDIR(status.st_mode)) return copy_below(from, to, path, name, depth);
    struct stat there {};
    if (fstatat(to, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0) return;
    if (S_ISREG(status.st_mode) && status.st_nlink > 1 && link(status, to, path, name)) return;
    layers::copy_node({.from = from, .to = to, .name = name, .new_name = name});
  }

  // True: another name of this file is in the copy, and now this one, too.
  bool link(const struct stat& status, int to, const std::string& path, const std::string& name) {
    const Inode inode{status.st_dev, status.st_ino};
    const auto known = links_.find(inode);
    if (known != links_.end())
      return linkat(top_.get(), known->second.c_str(), to, name.c_str(), 0) == 0;
    if (links_.size() < kMaxCopiedLinks) links_.emplace(inode, path);
    return false;
  }

  void copy_below(int from, int to, const std::string& path, const std::string& name,
                  size_t depth) {
    // The finder would not see what lies deeper, either.
    if (depth >= packs::kMaxMergedDepth) return;
    if (mkdirat(to, name.c_str(), 0700) != 0 && errno != EEXIST) base::throw_errno("make " + path);
    const Fd source = base::open_file_at(from, name, kDirectory);
    const Fd target = base::open_file_at(to, name, kDirectory);
    copy_directory(source.get(), target.get(), path, depth + 1);
  }

  const Fd top_;
  std::map<Inode, std::string> links_;
};

// Directories that their owner may not enter or change.
void open_up(int directory, size_t depth) {
  if (depth >= packs::kMaxMergedDepth) return;
  for (const std::string& name : base::list_directory(directory)) {
    struct stat status {};
    const bool found = fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (!found || !S_ISDIR(status.st_mode)) continue;
    if ((status.st_mode & S_IRWXU) != S_IRWXU)
      base::check(fchmodat(directory, name.c_str(), 0700, 0), "open the directory " + name);
    open_up(base::open_file_at(directory, name, kDirectory).get(), depth + 1);
  }
}

}  // namespace

void copy_tree(const std::string& from, const std::string& to) { Copier(to).copy(from); }

void remove_contents(const std::string& path) {
  const Fd directory = base::open_directory(path);
  if (geteuid() != 0) open_up(directory.get(), 0);
  for (const std::string& name : base::list_directory(directory.get()))
    base::remove_tree_at(directory.get(), name);
}

}  // namespace moorage::outpost
