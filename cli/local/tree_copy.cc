#include "cli/local/tree_copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"

namespace moorage::cli {
namespace {

constexpr int kDeepest = 400;  // each level holds a descriptor
constexpr uint32_t kPermissions = 0777;

void check_depth(int depth, const std::string& path) {
  if (depth > kDeepest) throw Error(Code::resource_exhausted, path + " is nested too deeply");
}

class CopyOut {
 public:
  CopyOut(RemoteFiles& files, CopyTally& tally) : files_(files), tally_(tally) {}

  void directory(int parent, const std::string& name, const std::string& from,
                 const std::vector<RemoteEntry>& entries, uint32_t mode, int depth) {
    check_depth(depth, from);
    if (::mkdirat(parent, name.c_str(), 0700) != 0 && errno != EEXIST)
      base::throw_errno("create " + name);
    const int follow = depth == 0 ? 0 : O_NOFOLLOW;  // the user chose the destination: follow links
    const Fd self = base::open_file_at(parent, name, O_RDONLY | O_DIRECTORY | follow);
    ++tally_.directories;
    for (const RemoteEntry& entry : entries) this->entry(self.get(), entry, from, depth);
    // Last: a read-only directory cannot be filled.
    ::fchmod(self.get(), mode & kPermissions);
  }

  void file(int parent, const std::string& name, const std::string& from, uint32_t mode,
            int follow) {
    const Fd out = create(parent, name, follow);
    files_.read(from, [&](std::string_view bytes) {
      base::write_all(out.get(), bytes);
      tally_.bytes += bytes.size();
    });
    base::check(::fchmod(out.get(), mode & kPermissions), "set the mode of " + name);
    ++tally_.files;
  }

 private:
  void entry(int parent, const RemoteEntry& entry, const std::string& directory_path, int depth) {
    if (!is_safe_name(entry.name)) {
      throw Error(Code::corrupted, directory_path + ": invalid file name: '" + entry.name + "'");
    }
    const std::string from = join_path(directory_path, entry.name);
    if (entry.type == "directory") {
      const auto entries = files_.list(from);
      if (!entries) throw Error(Code::conflict, from + " changed while it was copied");
      directory(parent, entry.name, from, *entries, entry.mode, depth + 1);
    } else if (entry.type == "symlink") {
      link(parent, entry);
    } else if (entry.type == "file") {
      file(parent, entry.name, from, entry.mode, O_NOFOLLOW);
    } else {
      ++tally_.skipped;
    }
  }

  void link(int parent, const RemoteEntry& entry) {
    ::unlinkat(parent, entry.name.c_str(), 0);
    const int made = ::symlinkat(entry.target.c_str(), parent, entry.name.c_str());
    base::check(made, "create " + entry.name);
    ++tally_.links;
  }

  static Fd create(int parent, const std::string& name, int follow) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    int fd = ::openat(parent, name.c_str(), kFlags | follow, 0600);
    if (fd < 0 && errno == ELOOP) {  // a link has the file's name: replace it
      ::unlinkat(parent, name.c_str(), 0);
      fd = ::openat(parent, name.c_str(), kFlags | O_EXCL | follow, 0600);
    }
    return Fd(base::check(fd, "create " + name));
  }

  RemoteFiles& files_;
  CopyTally& tally_;
};

class CopyIn {
 public:
  CopyIn(RemoteFiles& files, CopyTally& tally) : files_(files), tally_(tally) {}

  void any(int parent, const std::string& name, const std::string& to, int depth) {
    check_depth(depth, to);
    const int follow = depth == 0 ? 0 : AT_SYMLINK_NOFOLLOW;
    struct stat found {};
    base::check(::fstatat(parent, name.c_str(), &found, follow), "read " + name);
    if (S_ISDIR(found.st_mode)) {
      directory(parent, name, to, depth);
    } else if (S_ISREG(found.st_mode)) {
      file(parent, name, to, found.st_mode & kPermissions);
    } else if (S_ISLNK(found.st_mode)) {
      link(parent, name, to);
    } else {
      ++tally_.skipped;
    }
  }

 private:
  void directory(int parent, const std::string& name, const std::string& to, int depth) {
    const Fd self = base::open_file_at(parent, name, O_RDONLY | O_DIRECTORY);
    files_.make_directory(to);
    ++tally_.directories;
    for (const std::string& child : base::list_directory(self.get())) {
      any(self.get(), child, join_path(to, child), depth + 1);
    }
  }

  void file(int parent, const std::string& name, const std::string& to, uint32_t mode) {
    const Fd in = base::open_file_at(parent, name, O_RDONLY);
    files_.write(to, mode, [&](char* buffer, size_t size) {
      const ssize_t got = base::check(::read(in.get(), buffer, size), "read " + name);
      tally_.bytes += static_cast<uint64_t>(got);
      return static_cast<size_t>(got);
    });
    ++tally_.files;
  }

  void link(int parent, const std::string& name, const std::string& to) {
    std::string target(PATH_MAX, '\0');
    const ssize_t size = base::check(
        ::readlinkat(parent, name.c_str(), target.data(), target.size()), "read " + name);
    target.resize(static_cast<size_t>(size));
    files_.make_symlink(to, target);
    ++tally_.links;
  }

  RemoteFiles& files_;
  CopyTally& tally_;
};

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return "";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The listing of the directory has the file's mode.
uint32_t remote_mode(RemoteFiles& files, const std::string& path) {
  constexpr uint32_t kUsual = 0644;
  const auto entries = files.list(parent_of(path));
  if (!entries) return kUsual;
  const auto found = std::find_if(entries->begin(), entries->end(), [&](const RemoteEntry& entry) {
    return entry.name == name_of(path) && entry.type == "file";
  });
  return found == entries->end() ? kUsual : found->mode;
}

}  // namespace

CopyTally copy_out(RemoteFiles& files, const std::string& from, const std::string& to) {
  constexpr uint32_t kTopMode = 0755;
  CopyTally tally;
  CopyOut copy(files, tally);
  if (const auto entries = files.list(from)) {
    copy.directory(AT_FDCWD, to, from, *entries, kTopMode, 0);
  } else {
    copy.file(AT_FDCWD, to, from, remote_mode(files, from), 0);
  }
  return tally;
}

CopyTally copy_in(RemoteFiles& files, const std::string& from, const std::string& to) {
  CopyTally tally;
  CopyIn(files, tally).any(AT_FDCWD, from, to, 0);
  return tally;
}

}  // namespace moorage::cli
