// What differs between two commits, as an overlay upper directory over a tree of the first. Cost
// follows the change: equal subtrees are told by their ids and never opened. Overlay's own marks
// (kernel, overlayfs.rst): a whiteout is a character device 0:0, an opaque directory has
// trusted.overlay.opaque = "y".
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include <map>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "repo_cache/base_tree.h"
#include "repo_cache/blob_writer.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/owner_thread.h"
#include "repo_cache/tree_diff.h"
#include "repo_cache/workspace_git.h"

namespace moorage::repo_cache {

namespace {

using base::Code;
using base::Error;

struct Entry {
  uint32_t mode = 0;
  git_oid oid{};
};
using Entries = std::map<std::string, Entry, std::less<>>;

bool is_tree(const Entry& entry) { return entry.mode == GIT_FILEMODE_TREE; }
// A submodule is an empty directory in a tree.
bool is_directory(const Entry& entry) { return is_tree(entry) || entry.mode == kModeSubmodule; }

std::string child_path(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

class DeltaWriter {
 public:
  DeltaWriter(git_repository* repository, BlobWriter& blobs, int upper)
      : repository_(repository), blobs_(blobs), upper_(upper) {}

  void compare(const git_oid* before, const git_oid* after, const std::string& path) {
    const Entries old_entries = before ? read(*before) : Entries{};
    const Entries new_entries = after ? read(*after) : Entries{};
    for (const auto& [name, entry] : old_entries) {
      if (new_entries.count(name)) continue;
      remove(path, name, entry);
      attributes_changed_ |= name == ".gitattributes";
    }
    for (const auto& [name, entry] : new_entries) {
      check_entry_name(path, name, entry.mode);
      const auto old = old_entries.find(name);
      if (old == old_entries.end()) {
        create(path, name, entry);
      } else if (old->second.mode != entry.mode || !git_oid_equal(&old->second.oid, &entry.oid)) {
        change(path, name, old->second, entry);
      } else {
        continue;
      }
      attributes_changed_ |= name == ".gitattributes";
    }
  }

  // Writes a file that is the same in both commits but converts differently.
  void rewrite(const ListedFile& file) {
    if (written_.count(file.path)) return;
    const std::string directory = file.name_at ? file.path.substr(0, file.name_at - 1) : "";
    write_file(directory, file.name(), Entry{file.mode, file.oid});
  }

  const std::map<std::string, FileStat>& written() const { return written_; }
  uint64_t removed() const { return removed_; }
  bool attributes_changed() const { return attributes_changed_; }

 private:
  Entries read(const git_oid& oid) {
    git_tree* raw = nullptr;
    check_git_object(git_tree_lookup(&raw, repository_, &oid), "read a tree");
    const GitTree tree(raw);
    Entries entries;
    for (size_t i = 0; i < git_tree_entrycount(raw); ++i) {
      const git_tree_entry* entry = git_tree_entry_byindex(raw, i);
      entries.emplace(
          git_tree_entry_name(entry),
          Entry{static_cast<uint32_t>(git_tree_entry_filemode(entry)), *git_tree_entry_id(entry)});
    }
    return entries;
  }

  // The directory in the upper, made with its parents when it is not there yet.
  base::Fd open_directory(const std::string& path) {
    if (path.empty()) return base::open_file_at(upper_, ".", O_RDONLY | O_DIRECTORY);
    if (made_.insert(path).second) {
      const size_t slash = path.rfind('/');
      const base::Fd parent =
          open_directory(slash == std::string::npos ? "" : path.substr(0, slash));
      const std::string name = path.substr(slash == std::string::npos ? 0 : slash + 1);
      if (mkdirat(parent.get(), name.c_str(), 0755) < 0 && errno != EEXIST)
        base::throw_errno("create " + path);
    }
    return base::open_file_at(upper_, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  }

  void make_opaque(const std::string& path) {
    const base::Fd directory = open_directory(path);
    base::check(fsetxattr(directory.get(), "trusted.overlay.opaque", "y", 1, 0),
                "mark an opaque directory");
  }

  void write_file(const std::string& directory, const std::string& name, const Entry& entry) {
    const base::Fd fd = open_directory(directory);
    ListedFile file;
    file.path = child_path(directory, name);
    file.name_at = static_cast<uint32_t>(file.path.size() - name.size());
    file.mode = entry.mode;
    file.oid = entry.oid;
    written_[file.path] = blobs_.write(fd.get(), name.c_str(), file);
  }

  void create(const std::string& directory, const std::string& name, const Entry& entry) {
    const std::string path = child_path(directory, name);
    if (is_tree(entry)) {
      open_directory(path);
      compare(nullptr, &entry.oid, path);
    } else if (entry.mode == kModeSubmodule) {
      open_directory(path);
    } else {
      write_file(directory, name, entry);
    }
  }

  void remove(const std::string& directory, const std::string& name, const Entry& entry) {
    const base::Fd parent = open_directory(directory);
    const std::string path = base::escape_for_message(child_path(directory, name));
    base::check(mknodat(parent.get(), name.c_str(), S_IFCHR, makedev(0, 0)), "hide " + path);
    count_removed(entry);
  }

  void count_removed(const Entry& entry) {
    if (!is_tree(entry)) {
      ++removed_;
      return;
    }
    for (const auto& [name, child] : read(entry.oid)) count_removed(child);
  }

  void change(const std::string& directory, const std::string& name, const Entry& before,
              const Entry& after) {
    const std::string path = child_path(directory, name);
    if (is_tree(before) && is_tree(after)) {
      compare(&before.oid, &after.oid, path);
      return;
    }
    if (before.mode == kModeSubmodule && after.mode == kModeSubmodule) return;  // empty either way
    if (is_directory(before) != is_directory(after) || is_tree(before)) count_removed(before);
    create(directory, name, after);
    if (is_directory(after)) make_opaque(path);
  }

  git_repository* repository_;
  BlobWriter& blobs_;
  int upper_;
  std::set<std::string> made_;
  std::map<std::string, FileStat> written_;
  uint64_t removed_ = 0;
  bool attributes_changed_ = false;
};

bool same_conversion(const Conversion& a, const Conversion& b) {
  return a.line_ends == b.line_ends && a.ident == b.ident && a.encoding == b.encoding;
}

// Stat data of the new commit's files: of what was just written, else as the old tree has it.
std::string merge_index(const TreeListing& listing, const std::map<std::string, FileStat>& written,
                        const std::string& old_index) {
  const std::vector<IndexedFile> old_files = read_index(old_index);
  std::vector<FileStat> stats;
  stats.reserve(listing.files.size());
  auto old = old_files.begin();
  for (const ListedFile& file : listing.files) {
    while (old != old_files.end() && old->path < file.path) ++old;
    const auto fresh = written.find(file.path);
    if (fresh != written.end()) {
      stats.push_back(fresh->second);
    } else if (old != old_files.end() && old->path == file.path) {
      stats.push_back(old->stat);
    } else if (file.mode == kModeSubmodule) {
      stats.push_back({});
    } else {
      throw Error(Code::corrupted,
                  "the index of a base tree lacks \"" + base::escape_for_message(file.path) + "\"");
    }
  }
  return make_index(listing, stats);
}

void write_head_and_index(int upper, const std::string& commit, const std::string& index) {
  if (mkdirat(upper, ".git", 0755) < 0 && errno != EEXIST) base::throw_errno("create .git");
  const base::Fd git = base::open_file_at(upper, ".git", O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  const auto put = [&git](const char* name, std::string_view bytes) {
    const base::Fd fd = base::open_file_at(git.get(), name, O_WRONLY | O_CREAT | O_EXCL, 0644);
    base::write_all(fd.get(), bytes);
  };
  put("HEAD", commit + "\n");
  put("index", index);
}

struct DeltaTask {
  const RepoCache& cache;
  std::string repo;
  std::string from;
  std::string to;
  int upper = -1;
  std::string old_index;  // empty: no index is written
};

// Attributes that changed change files that did not: they are compared path by path.
void rewrite_converted(const Attributes& before, const Attributes& after,
                       const TreeListing& listing, DeltaWriter& delta) {
  if (!before.relevant() && !after.relevant()) return;
  for (const ListedFile& file : listing.files) {
    if (file.mode != kModeFile && file.mode != kModeExecutable) continue;
    if (!same_conversion(before.conversion(file.path), after.conversion(file.path)))
      delta.rewrite(file);
  }
}

DeltaInfo run_delta(const DeltaTask& task) {
  const std::string git = task.cache.mirror_directory(task.repo);
  const GitRepository repository = open_mirror(git);
  const GitTree from = find_commit_tree(repository.get(), task.from);
  const GitTree to = find_commit_tree(repository.get(), task.to);
  const TreeListing listing = list_tree(repository.get(), task.to);
  const Attributes after = read_attributes(repository.get(), listing);
  // Without an index of their own the files are changes over the old tree's index: their time must
  // differ from the one in there, or git would take a file of equal size for unchanged. That one is
  // always in the past.
  const uint32_t mtime_s = task.old_index.empty()
                               ? static_cast<uint32_t>(base::system_clock().wall_ms() / 1000)
                               : file_time_of(repository.get(), task.to);
  BlobWriter blobs(git, after, mtime_s);
  DeltaWriter delta(repository.get(), blobs, task.upper);
  delta.compare(git_tree_id(from.get()), git_tree_id(to.get()), "");
  if (delta.attributes_changed()) {
    const TreeListing old_listing = list_tree(repository.get(), task.from);
    rewrite_converted(read_attributes(repository.get(), old_listing), after, listing, delta);
  }
  if (!task.old_index.empty()) {
    write_head_and_index(task.upper, task.to,
                         merge_index(listing, delta.written(), task.old_index));
  }
  return {delta.written().size(), delta.removed(), blobs.counts().bytes};
}

DeltaInfo run_as_file_owner(const DeltaTask& task) {
  DeltaInfo info;
  run_as_owner(task.cache.options().disk_first_id + 1000, 1,
               [&](unsigned) { info = run_delta(task); });
  return info;
}

}  // namespace

DeltaInfo BaseTrees::write_delta(const std::string& repo, const std::string& from_commit,
                                 const std::string& to_commit, int upper_fd) const {
  return run_as_file_owner({cache_, repo, from_commit, to_commit, upper_fd, {}});
}

DeltaInfo BaseTrees::write_delta_with_index(const std::string& repo, const std::string& from_commit,
                                            const std::string& to_commit, int upper_fd) const {
  const std::string index = tree_path(repo, from_commit) + "/.git/index";
  return run_as_file_owner(
      {cache_, repo, from_commit, to_commit, upper_fd, base::read_file(index, 2ull << 30)});
}

}  // namespace moorage::repo_cache
