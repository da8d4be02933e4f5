// Two overlays over one base: a finder follows the first, an applier fills the second.
#pragma once

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "packs/merged/applier.h"
#include "packs/merged/finder.h"
#include "packs/tar_fixture.h"

namespace moorage::packs {

namespace fs = std::filesystem;

inline base::Fd file_with(const std::string& bytes) {
  base::Fd file = unnamed_file();
  base::write_all(file.get(), bytes);
  return file;
}

// One mounted overlay in DIR: uppers DIR/0 (the oldest), DIR/1...; DIR/merged.
class MountedOverlay {
 public:
  MountedOverlay(std::string directory, std::string base, bool user_marks)
      : directory_(std::move(directory)), base_(std::move(base)), user_marks_(user_marks) {
    for (const char* name : {"", "/0", "/work", "/merged"}) fs::create_directory(directory_ + name);
    mount_all();
  }
  ~MountedOverlay() { unmount(); }

  std::string merged() const { return directory_ + "/merged"; }
  std::string upper() const { return directory_ + "/" + std::to_string(newest_); }
  void freeze() {  // the writable directory becomes the newest lower one
    unmount();
    ++newest_;
    fs::create_directory(upper());
    mount_all();
  }
  // Opened now: the finder's view of it.
  MergedRoot root(const std::string& prefix, bool only_newest = true) {
    MergedRoot root;
    root.prefix = prefix;
    root.merged = open_now(merged());
    for (int n = newest_; n >= 0; --n) {
      root.uppers.push_back(open_now(directory_ + "/" + std::to_string(n)));
      if (only_newest) break;
    }
    return root;
  }
  layers::OverlayMarks marks() const {
    return user_marks_ ? layers::OverlayMarks::user : layers::OverlayMarks::trusted;
  }
  void close() { opened_.clear(); }

 private:
  int open_now(const std::string& path) {
    opened_.push_back(base::open_directory(path));
    return opened_.back().get();
  }
  void unmount() {
    close();
    if (umount2(merged().c_str(), 0) < 0) abort();
  }
  void mount_all() {
    std::string lower;
    for (int n = newest_ - 1; n >= 0; --n) lower += directory_ + "/" + std::to_string(n) + ":";
    const std::string options = "lowerdir=" + lower + base_ + ",upperdir=" + upper() +
                                ",workdir=" + directory_ + "/work,index=off,metacopy=off," +
                                (user_marks_ ? "userxattr" : "redirect_dir=on");
    if (mount("overlay", merged().c_str(), "overlay", 0, options.c_str()) < 0) abort();
  }

  const std::string directory_;
  const std::string base_;
  const bool user_marks_;
  int newest_ = 0;
  std::vector<base::Fd> opened_;
};

// Inside a user namespace, an overlay shows two inode numbers for two names of a file that it
// copied up: there, `first_names` is false.
inline std::string difference(const std::string& one, const std::string& other,
                              bool first_names = true) {
  const layers::TreeManifest::Options options{
      .overlay_marks = false, .link_counts = false, .first_names = first_names};
  const auto first = layers::TreeManifest(one, options).lines;
  const auto second = layers::TreeManifest(other, options).lines;
  std::string text;
  for (const auto& [path, line] : first) {
    const auto found = second.find(path);
    if (found == second.end()) {
      text += "only in the first: " + path + " " + line + "\n";
    } else if (found->second != line) {
      text += path + "\n  " + line + "\n  " + found->second + "\n";
    }
  }
  for (const auto& [path, line] : second)
    if (!first.contains(path)) text += "only in the second: " + path + " " + line + "\n";
  return text;
}

struct FoundPack {
  std::string bytes;  // empty: nothing to send
  FoundChanges changes;
};

inline FoundPack find_with(const FinderOptions& options, SentList& sent) {
  FoundPack found;
  std::unique_ptr<PackWriter> writer;
  MergedFinder finder(options, sent);
  found.changes = finder.find([&]() -> PackWriter& {
    if (!writer)
      writer = std::make_unique<PackWriter>([&](std::string_view part) { found.bytes += part; });
    return *writer;
  });
  if (writer) writer->finish();
  return found;
}

inline AppliedChanges apply_to(const MergedRoot& root, const std::string& pack,
                               MergedApplier::Options options = {}) {
  options.roots = {root};
  return apply_pack(PackReader(file_with(pack)), options);
}

// Random edits of a mounted tree by any user of a sandbox; skips edits that the kernel refuses.
class MergedEditor {
 public:
  MergedEditor(std::string root, uint32_t seed) : root_(std::move(root)), random_(seed) {}
  void edit(int count) {
    for (int i = 0; i < count; ++i) edit_once();
  }
  size_t pick(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }

 private:
  std::string any_path() {
    std::vector<std::string> paths{root_};
    std::error_code ignored;
    for (auto one = fs::recursive_directory_iterator(root_, ignored); one != fs::end(one);
         one.increment(ignored))
      paths.push_back(one->path().string());
    return paths[pick(paths.size())];
  }
  std::string any_name() {
    static const std::vector<std::string> kNames{"a", "b", "objects", "zz", "n\n", "\xff", "d"};
    const std::string path = any_path();
    if (fs::is_symlink(path) || !fs::is_directory(path)) return path;
    return path + "/" + kNames[pick(kNames.size())];
  }
  void write_some(const std::string& path) {
    base::Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0644));
    struct stat status {};
    if (!fd || fstat(fd.get(), &status) < 0 || !S_ISREG(status.st_mode)) return;
    if (pick(4) == 0 && ftruncate(fd.get(), static_cast<off_t>(pick(300'000))) < 0) return;
    const std::string bytes(1 + pick(pick(8) ? 100 : 200'000), static_cast<char>('a' + pick(26)));
    base::write_at(fd.get(), bytes, pick(3) ? 0 : pick(1'000'000));
  }
  void change_attributes(const std::string& path) {
    const std::string name = pick(2) ? "user.one" : "user.two";
    const std::string value = std::to_string(pick(100));
    if (fs::is_symlink(path)) return;
    if (pick(3) == 0) {
      removexattr(path.c_str(), name.c_str());
    } else if (setxattr(path.c_str(), name.c_str(), value.data(), value.size(), 0) < 0) {
      return;
    }
  }
  void change_status(const std::string& path) {
    const timespec times[2]{{0, UTIME_OMIT}, {static_cast<time_t>(pick(2'000'000'000)), 5}};
    switch (pick(3)) {
      case 0:
        if (!fs::is_symlink(path) && chmod(path.c_str(), pick(010000)) < 0) return;
        break;
      case 1:
        if (lchown(path.c_str(), pick(2) ? 1000 : 33, pick(2) ? 1000 : 0) < 0) return;
        break;
      default:
        utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW);
    }
  }

  void edit_once() {
    const std::string path = any_name();
    const std::string other = any_path();
    std::error_code ignored;
    switch (pick(13)) {
      case 0:
      case 1:
      case 2:
        return write_some(path);
      case 3:
      case 4:
        if (mkdir(path.c_str(), 0755) < 0) return;
        break;
      case 5:
        if (other != root_) fs::remove_all(other, ignored);
        break;
      case 6:
        if (symlink(pick(2) ? "target" : "../..", path.c_str()) < 0 && pick(2))
          unlink(path.c_str());
        break;
      case 7:
        if (link(other.c_str(), path.c_str()) < 0) return;
        break;
      case 8:
        return change_attributes(other);
      case 9:
        return change_status(other);
      case 10:
        mknod(path.c_str(), pick(2) ? S_IFIFO | 0600 : S_IFSOCK | 0644, 0);
        break;
      default:
        if (other != root_) rename(other.c_str(), path.c_str());
    }
  }

  std::string root_;
  std::mt19937 random_;
};

inline Node node(const std::string& path, NodeType type = NodeType::directory) {
  Node made;
  made.path = path;
  made.type = type;
  made.mode = 0755;
  made.mtime = {1'700'000'000, 7};
  return made;
}

inline std::string pack_of(const std::function<void(PackWriter&)>& fill) {
  std::string bytes;
  PackWriter writer([&](std::string_view piece) { bytes += piece; });
  fill(writer);
  writer.finish();
  return bytes;
}

inline void put_file(PackWriter& pack, const std::string& path, const std::string& bytes) {
  Node file = node(path, NodeType::file);
  file.size = bytes.size();
  pack.entry(file);
  pack.piece(0, bytes);
  pack.end_pieces();
}

// A plain directory "top" beside a victim that no pack may reach.
struct Target {
  TemporaryDirectory directory;
  std::string top = directory.path() + "/top";
  base::Fd fd;
  MergedRoot root;

  Target() {
    fs::create_directory(top);
    base::write_file(directory.path() + "/victim", "precious");
    fs::create_directory(top + "/dir");
    base::write_file(top + "/dir/file", "old");
    fs::create_symlink("../..", top + "/out");
    fs::create_symlink(directory.path(), top + "/dir/far");
    fd = base::open_directory(top);
    root.prefix = "tree";
    root.merged = fd.get();
  }
};

inline void make_base(const std::string& base) {
  for (const std::string directory : {"", "/a", "/a/b", "/a/b/c", "/d", "/d/e", "/objects"}) {
    fs::create_directory(base + directory);
    for (const std::string name : {"x", "y", "zz"})
      base::write_file(base + directory + "/" + name, "base " + directory + name, 0644);
  }
}

}  // namespace moorage::packs
