#include "cli/local/tree_copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/file_time.h"
#include "base/os/files.h"
#include "cli/local/copied_file.h"
#include "cli/local/git_copy.h"

namespace moorage::cli {
namespace {

constexpr int kDeepest = 400;  // each level holds a descriptor
constexpr uint32_t kPermissions = 0777, kSpecial = 07000;

FileState state_of(const struct stat& status) {
  return {status.st_mode & kPermissions, base::file_time_ns(status.st_mtim)};
}

FileState usual_state(uint32_t mode) { return {mode, base::system_clock().wall_ms() * 1'000'000}; }

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return "";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// ".git/", ".git/." and "x/../.git" are ".git": its files must not come along under another name.
std::string plain(const std::string& path) {
  std::string normal = std::filesystem::path(path).lexically_normal().string();
  if (normal.size() > 1 && normal.ends_with('/')) normal.pop_back();
  return normal == "." ? "" : normal;
}

void note_special(CopyTally& tally, const std::string& path, uint32_t mode) {
  if ((mode & kSpecial) != 0) tally.special_modes.push_back(path);
}

void check_depth(int depth, const std::string& path) {
  if (depth > kDeepest) throw Error(Code::resource_exhausted, path + " is nested too deeply");
}

class CopyOut {
 public:
  CopyOut(RemoteFiles& files, CopyTally& tally) : files_(files), tally_(tally) {}

  // local: the path of the directory here.
  void directory(int parent, const std::string& name, const std::string& from,
                 const std::string& local, const std::vector<RemoteEntry>& entries,
                 const FileState& state, int depth) {
    check_depth(depth, from);
    const bool created = ::mkdirat(parent, name.c_str(), 0700) == 0;
    if (!created && errno != EEXIST) base::throw_errno("create " + name);
    const int follow = depth == 0 ? 0 : O_NOFOLLOW;  // the user chose the destination: follow links
    const Fd self = base::open_file_at(parent, name, O_RDONLY | O_DIRECTORY | follow);
    ++tally_.directories;
    if (is_git_name(name_of(from)) || is_git_name(name_of(local))) {
      git_directory(self.get(), from, local, entries, depth);
    } else {
      for (const RemoteEntry& entry : entries) this->entry(self.get(), entry, from, local, depth);
    }
    // Last: a read-only directory cannot be filled, and filling it changes its time. One that was
    // here before may belong to somebody else.
    if (!created) return;
    set_state(self.get(), name, state);
    note_special(tally_, from, state.mode);
  }

  void file(int parent, const std::string& name, const std::string& from, const FileState& state,
            Links links) {
    CopiedFile copied(parent, name, links);
    files_.read(from, [&](std::string_view bytes) {
      copied.write(bytes);
      tally_.bytes += bytes.size();
    });
    copied.commit(state);
    note_special(tally_, from, state.mode);
    ++tally_.files;
  }

 private:
  std::string checked_path(const std::string& directory_path, const RemoteEntry& entry) const {
    if (is_safe_name(entry.name)) return join_path(directory_path, entry.name);
    throw Error(Code::corrupted, directory_path + ": invalid file name: '" + entry.name + "'");
  }

  std::vector<RemoteEntry> list(const std::string& from) {
    auto entries = files_.list(from);
    if (!entries) throw Error(Code::conflict, from + " changed while it was copied");
    return std::move(*entries);
  }

  void entry(int parent, const RemoteEntry& entry, const std::string& directory_path,
             const std::string& local, int depth) {
    const std::string from = checked_path(directory_path, entry);
    if (entry.type == "directory") {
      directory(parent, entry.name, from, join_path(local, entry.name), list(from),
                {entry.mode, entry.modified_ns}, depth + 1);
    } else if (is_git_name(entry.name)) {
      ++tally_.git_links;  // it leads to another place inside
    } else if (entry.type == "symlink") {
      link(parent, entry);
    } else if (entry.type == "file") {
      file(parent, entry.name, from, {entry.mode, entry.modified_ns}, Links::not_followed);
    } else {
      ++tally_.skipped;
    }
  }

  // Of a .git itself.
  void git_directory(int self, const std::string& from, const std::string& local,
                     const std::vector<RemoteEntry>& entries, int depth) {
    bool borrows = false;
    git_entries(self, from, "", entries, depth, borrows);
    const bool top = from == ".git" || from == "/workspace/.git";
    CopiedFile config(self, "config", Links::not_followed);
    config.write(new_git_config(top ? files_.origin() : ""));
    config.commit(usual_state(0644));
    if (borrows) complete(local);
    if (!make_index(local)) ++tally_.without_index;
    ++tally_.repositories;
  }

  // An agent can make any number of repositories that borrow: the objects are sent once, and some
  // of these get them.
  void complete(const std::string& local) {
    constexpr int kMost = 10;
    if (completed_ == kMost) {
      ++tally_.incomplete;
      return;
    }
    if (!objects_) objects_ = fetch_objects(files_, local);
    ++completed_;
    if (!add_objects(objects_.get(), local)) ++tally_.incomplete;
  }

  // inside: the path below .git.
  void git_entries(int self, const std::string& from, const std::string& inside,
                   const std::vector<RemoteEntry>& entries, int depth, bool& borrows) {
    check_depth(depth, from);
    for (const RemoteEntry& entry : entries) {
      const std::string path = checked_path(from, entry);
      const std::string below = join_path(inside, entry.name);
      if (entry.type == "directory" && enters_git_directory(below)) {
        if (::mkdirat(self, entry.name.c_str(), 0755) != 0 && errno != EEXIST)
          base::throw_errno("create " + below);
        const Fd child = base::open_file_at(self, entry.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
        git_entries(child.get(), path, below, list(path), depth + 1, borrows);
      } else if (entry.type == "file" && keeps_git_file(below)) {
        file(self, entry.name, path, {entry.mode, entry.modified_ns}, Links::not_followed);
      } else if (entry.type == "file" && below == kAlternates) {
        borrows = borrows_objects(small_file(path));
      }
    }
  }

  std::string small_file(const std::string& path) {
    constexpr size_t kMost = 64 << 10;
    std::string text;
    files_.read(path, [&](std::string_view bytes) {
      text += bytes.substr(0, kMost - std::min(kMost, text.size()));
    });
    return text;
  }

  void link(int parent, const RemoteEntry& entry) {
    create_link(parent, entry.name, entry.target, entry.modified_ns);
    ++tally_.links;
  }

  RemoteFiles& files_;
  CopyTally& tally_;
  Fd objects_;  // of the workspace's repository; empty: not fetched
  int completed_ = 0;
};

class CopyIn {
 public:
  CopyIn(RemoteFiles& files, CopyTally& tally) : files_(files), tally_(tally) {}

  void any(int parent, const std::string& name, const std::string& to, int depth, Links link_here) {
    check_depth(depth, to);
    const int follow = link_here == Links::followed ? 0 : AT_SYMLINK_NOFOLLOW;
    struct stat found {};
    base::check(::fstatat(parent, name.c_str(), &found, follow), "read " + name);
    if (S_ISDIR(found.st_mode)) {
      note_special(tally_, to, found.st_mode);
      directory(parent, name, to, state_of(found), depth);
    } else if (S_ISREG(found.st_mode)) {
      note_special(tally_, to, found.st_mode);
      file(parent, name, to, state_of(found));
    } else if (S_ISLNK(found.st_mode)) {
      link(parent, name, to, state_of(found));
    } else {
      ++tally_.skipped;
    }
  }

 private:
  void directory(int parent, const std::string& name, const std::string& to, const FileState& state,
                 int depth) {
    const Fd self = base::open_file_at(parent, name, O_RDONLY | O_DIRECTORY);
    files_.make_directory(to);
    ++tally_.directories;
    for (const std::string& child : base::list_directory(self.get())) {
      any(self.get(), child, join_path(to, child), depth + 1, Links::not_followed);
    }
    if (!to.empty()) files_.make_directory(to, state);  // last, as filling it changes its time
  }

  void file(int parent, const std::string& name, const std::string& to, const FileState& state) {
    const Fd in = base::open_file_at(parent, name, O_RDONLY);
    files_.write(to, state, [&](char* buffer, size_t size) {
      const ssize_t got = base::check(::read(in.get(), buffer, size), "read " + name);
      tally_.bytes += static_cast<uint64_t>(got);
      return static_cast<size_t>(got);
    });
    ++tally_.files;
  }

  void link(int parent, const std::string& name, const std::string& to, const FileState& state) {
    std::string target(PATH_MAX, '\0');
    const ssize_t size = base::check(
        ::readlinkat(parent, name.c_str(), target.data(), target.size()), "read " + name);
    target.resize(static_cast<size_t>(size));
    files_.make_symlink(to, target, state.modified_ns);
    ++tally_.links;
  }

  RemoteFiles& files_;
  CopyTally& tally_;
};

// As the listing of the directory above has it. Nothing: it has none, or too many entries to find
// this one.
std::optional<FileState> remote_state(RemoteFiles& files, const std::string& path,
                                      std::string_view type) {
  if (name_of(path).empty()) return std::nullopt;
  std::optional<std::vector<RemoteEntry>> entries;
  try {
    entries = files.list(parent_of(path));
  } catch (const Error& error) {
    if (error.code() != Code::resource_exhausted && error.code() != Code::not_found) throw;
  }
  if (!entries) return std::nullopt;
  const auto found = std::find_if(entries->begin(), entries->end(), [&](const RemoteEntry& entry) {
    return entry.name == name_of(path) && entry.type == type;
  });
  if (found == entries->end()) return std::nullopt;
  return FileState{found->mode, found->modified_ns};
}

bool is_root(const std::string& path) {
  return path.empty() || path == "/workspace" || path == "/home/user";
}

}  // namespace

CopyTally copy_out(RemoteFiles& files, const std::string& wanted, const std::string& to) {
  constexpr uint32_t kDirectory = 0755;
  constexpr uint32_t kFile = 0644;
  const std::string from = plain(wanted);
  CopyTally tally;
  CopyOut copy(files, tally);
  if (const auto entries = files.list(from)) {
    const auto state = is_root(from) ? std::nullopt : remote_state(files, from, "directory");
    copy.directory(AT_FDCWD, to, from, plain(to), *entries, state.value_or(usual_state(kDirectory)),
                   0);
  } else {
    copy.file(AT_FDCWD, to, from, remote_state(files, from, "file").value_or(usual_state(kFile)),
              Links::followed);
  }
  return tally;
}

CopyTally copy_in(RemoteFiles& files, const std::string& from, const std::string& to, Links link) {
  CopyTally tally;
  CopyIn(files, tally).any(AT_FDCWD, from, to, 0, link);
  return tally;
}

}  // namespace moorage::cli
