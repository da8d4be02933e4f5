// The difference of two commits as an overlay upper directory over a tree of the first. The cost
// depends on the size of the change: equal subtrees have equal ids and are never opened. Overlay's
// own marks (kernel, overlayfs.rst): a whiteout is a character device 0:0, an opaque directory has
// trusted.overlay.opaque = "y".
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/os/xattr.h"
#include "repo_cache/base_manifest.h"
#include "repo_cache/base_tree.h"
#include "repo_cache/blob_writer.h"
#include "repo_cache/formats/lfs_pointer.h"
#include "repo_cache/fsuid_threads.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/tree_diff.h"
#include "repo_cache/workspace_git.h"

namespace moorage::repo_cache {

namespace {

struct Entry {
  uint32_t mode = 0;
  git_oid oid{};
};
using Entries = std::map<std::string, Entry, std::less<>>;
constexpr uint64_t kOwnOfGit = 3;  // .git, and HEAD and index in it
constexpr size_t kMaxWritten = 5'000'000;

bool is_tree(const Entry& entry) { return entry.mode == GIT_FILEMODE_TREE; }
// A submodule is an empty directory in a tree.
bool is_directory(const Entry& entry) { return is_tree(entry) || entry.mode == kModeSubmodule; }

[[noreturn]] void throw_too_many() {
  throw Error(Code::resource_exhausted, "too many files differ between the two commits",
              "the commit is broken or hostile; choose another one");
}

class DeltaWriter {
 public:
  DeltaWriter(git_repository* repository, BlobWriter& blobs, int upper)
      : repository_(repository), blobs_(blobs), upper_(upper) {}

  void compare(const git_oid* before, const git_oid* after, const std::string& path) {
    const Entries old_entries = before ? read(*before) : Entries{};
    const Entries new_entries = after ? read(*after) : Entries{};
    if (after) check_new(new_entries, *after, path);
    for (const auto& [name, entry] : old_entries) {
      if (new_entries.count(name)) continue;
      remove(path, name, entry);
      attributes_changed_ |= name == ".gitattributes";
    }
    for (const auto& [name, entry] : new_entries) {
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

  // Writes a file with equal contents in both commits but different conversions.
  void rewrite(const ListedFile& file) {
    if (written_.count(file.path)) return;
    write_file(file.directory(), file.name(), Entry{file.mode, file.oid});
  }

  const std::map<std::string, FileStat>& written() const { return written_; }
  const IndexChanges& changes() const { return changes_; }
  uint64_t entries() const { return written_.size() + made_.size() + whiteouts_; }
  uint64_t removed() const { return removed_; }
  bool attributes_changed() const { return attributes_changed_; }

 private:
  Entries read(const git_oid& oid) {
    const GitTree tree = read_tree(repository_, oid);
    Entries entries;
    for (size_t i = 0; i < git_tree_entrycount(tree.get()); ++i) {
      const git_tree_entry* entry = git_tree_entry_byindex(tree.get(), i);
      entries.emplace(
          git_tree_entry_name(entry),
          Entry{static_cast<uint32_t>(git_tree_entry_filemode(entry)), *git_tree_entry_id(entry)});
    }
    return entries;
  }

  // Refuses everything that list_tree() refuses. The map drops duplicate names.
  void check_new(const Entries& entries, const git_oid& oid, const std::string& path) {
    const GitTree tree = read_tree(repository_, oid);
    if (git_tree_entrycount(tree.get()) != entries.size()) refuse_path(path, "duplicate name");
    if (static_cast<size_t>(std::count(path.begin(), path.end(), '/')) >= kMaxTreeDepth)
      refuse_path(path, "more than 1000 directories deep");
    std::string last;
    for (size_t i = 0; i < git_tree_entrycount(tree.get()); ++i) {
      const git_tree_entry* entry = git_tree_entry_byindex(tree.get(), i);
      const std::string name = git_tree_entry_name(entry);
      const auto mode = static_cast<uint32_t>(git_tree_entry_filemode(entry));
      const std::string whole = checked_path(path, name, mode);
      std::string key = mode == GIT_FILEMODE_TREE ? name + "/" : name;
      if (i > 0 && last >= key) refuse_path(whole, "entries out of order");
      last = std::move(key);
    }
  }

  // Opens the directory in the upper, creating it and its parents if missing.
  Fd open_directory(const std::string& path) {
    if (path.empty()) return base::open_file_at(upper_, ".", O_RDONLY | O_DIRECTORY);
    if (made_.insert(path).second) {
      const size_t name_at = path.rfind('/') + 1;  // 0 without a slash
      const Fd parent = open_directory(path.substr(0, name_at ? name_at - 1 : 0));
      const std::string name = path.substr(name_at);
      if (mkdirat(parent.get(), name.c_str(), 0755) < 0 && errno != EEXIST)
        base::throw_errno("create " + path);
    }
    return base::open_file_at(upper_, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  }

  void make_opaque(const std::string& path) {
    base::write_attribute(open_directory(path).get(), "trusted.overlay.opaque", "y");
  }

  void write_file(const std::string& directory, const std::string& name, const Entry& entry) {
    const Fd fd = open_directory(directory);
    ListedFile file;
    file.path = child_path(directory, name);
    file.name_at = static_cast<uint32_t>(file.path.size() - name.size());
    file.mode = entry.mode;
    file.oid = entry.oid;
    const FileStat stat = blobs_.write(fd.get(), name.c_str(), file);
    written_[file.path] = stat;
    put(file.path, entry, stat);
  }

  void put(const std::string& path, const Entry& entry, const FileStat& stat) {
    if (changes_.put.size() >= kMaxWritten) throw_too_many();
    changes_.put[path] = {entry.mode, entry.oid, stat};
  }

  void create(const std::string& directory, const std::string& name, const Entry& entry) {
    const std::string path = child_path(directory, name);
    if (is_tree(entry)) {
      open_directory(path);
      compare(nullptr, &entry.oid, path);
    } else if (entry.mode == kModeSubmodule) {
      open_directory(path);
      put(path, entry, {});
    } else {
      write_file(directory, name, entry);
    }
  }

  void remove(const std::string& directory, const std::string& name, const Entry& entry) {
    const Fd parent = open_directory(directory);
    const std::string path = base::escape_for_message(child_path(directory, name));
    base::check(mknodat(parent.get(), name.c_str(), S_IFCHR, makedev(0, 0)), "hide " + path);
    ++whiteouts_;
    changes_.gone.insert(child_path(directory, name));
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
    if (before.mode == kModeSubmodule && after.mode == kModeSubmodule) {  // empty either way
      put(path, after, {});
      return;
    }
    changes_.gone.insert(path);
    if (is_directory(before) != is_directory(after) || is_tree(before)) count_removed(before);
    create(directory, name, after);
    if (is_directory(after)) make_opaque(path);
  }

  git_repository* repository_;
  BlobWriter& blobs_;
  int upper_;
  std::set<std::string> made_;
  std::map<std::string, FileStat> written_;
  IndexChanges changes_;
  uint64_t removed_ = 0;
  uint64_t whiteouts_ = 0;
  bool attributes_changed_ = false;
};

bool same_conversion(const Conversion& a, const Conversion& b) {
  return a.line_ends == b.line_ends && a.ident == b.ident && a.encoding == b.encoding;
}

struct DeltaTask {
  const RepoCache& cache;
  std::string repo;
  std::string from;
  std::string to;
  int upper = -1;
  uint64_t most_steps() const { return cache.options().max_attribute_steps; }
};

// Changed attributes affect unchanged files: compares path by path. `after` and `listing` are of
// the new commit.
void rewrite_converted(const DeltaTask& task, git_repository* repository, const Attributes& after,
                       const TreeListing& listing, DeltaWriter& delta) {
  const Attributes before =
      read_attributes(repository, list_tree(repository, task.from), task.most_steps());
  if (!before.relevant() && !after.relevant()) return;
  for (const ListedFile& file : listing.files) {
    if (file.mode != kModeFile && file.mode != kModeExecutable) continue;
    if (!same_conversion(before.conversion(file.path), after.conversion(file.path)))
      delta.rewrite(file);
  }
}

// Lists no tree: the old tree's index provides the unchanged files.
class IndexedDelta {
 public:
  IndexedDelta(const DeltaTask& task, const std::string& old_index)
      : task_(task),
        git_(task.cache.mirror_directory(task.repo)),
        repository_(open_mirror(git_)),
        old_index_(old_index),
        old_files_(read_index(old_index_)) {}

  DeltaInfo write(BaseTreeInfo& shown) {
    const GitTree from = find_commit_tree(repository_.get(), task_.from);
    const GitTree to = find_commit_tree(repository_.get(), task_.to);
    const TreeDistance distance = measure_distance(repository_.get(), *git_tree_id(from.get()),
                                                   *git_tree_id(to.get()), kMaxWritten);
    if (!distance.complete) throw_too_many();
    const bool converted = distance.attributes;
    TreeListing listing;  // of .gitattributes only, if unchanged
    if (converted)
      listing = list_tree(repository_.get(), task_.to);
    else
      listing.files = old_attributes();
    const Attributes after = read_attributes(repository_.get(), listing, task_.most_steps());
    BlobWriter blobs(task_.cache.options(), git_, after, file_time_of(repository_.get(), task_.to));
    DeltaWriter delta(repository_.get(), blobs, task_.upper);
    delta.compare(git_tree_id(from.get()), git_tree_id(to.get()), "");
    if (converted) rewrite_converted(task_, repository_.get(), after, listing, delta);
    const MergedIndex index = merge_index(
        old_index_, old_files_, delta.changes(), *git_tree_id(to.get()),
        [this](const git_oid& tree) { return index_tree_entries(repository_.get(), tree); });
    write_head_and_index(task_.upper, task_.to, index.bytes);
    shown = count(index, delta.changes(), after);
    shown.own_files = delta.entries() + kOwnOfGit;
    shown.own_bytes = blobs.counts().bytes + index.bytes.size();
    return {delta.written().size(), delta.removed(), blobs.counts().bytes};
  }

 private:
  std::vector<ListedFile> old_attributes() const {
    std::vector<ListedFile> files;
    for (const IndexedFile& file : old_files_) {
      const size_t name_at = file.path.rfind('/') + 1;  // 0 without a slash
      if (file.path.substr(name_at) != ".gitattributes") continue;
      files.push_back(
          {std::string(file.path), static_cast<uint32_t>(name_at), file.mode, file.oid});
    }
    return files;
  }

  BaseTreeInfo count(const MergedIndex& index, const IndexChanges& changes,
                     const Attributes& attributes) const {
    BaseTreeInfo info;
    info.directories = index.directories;
    const GitOdb objects = open_odb(repository_.get());
    const auto add = [&](std::string_view path, uint32_t mode, uint64_t size, const git_oid& oid) {
      if (mode == kModeSubmodule) {
        ++info.submodules;
        return;
      }
      ++info.files;
      info.bytes += size;
      if (!attributes.relevant() || mode == kModeSymlink) return;
      const std::string filter = attributes.conversion(path).filter;
      if (filter.empty()) return;
      if (filter != "lfs") {
        ++info.other_filters;
      } else if (size <= kMaxLfsPointer) {
        info.lfs_files += is_lfs_pointer(content_of(read_object(objects.get(), oid))) ? 1 : 0;
      }
    };
    for (size_t i = 0; i < old_files_.size(); ++i) {
      const IndexedFile& file = old_files_[i];
      if (!index.replaced[i]) add(file.path, file.mode, file.stat.size, file.oid);
    }
    for (const auto& [path, entry] : changes.put) add(path, entry.mode, entry.stat.size, entry.oid);
    return info;
  }

  const DeltaTask& task_;
  const std::string git_;
  const GitRepository repository_;
  const std::string& old_index_;
  const std::vector<IndexedFile> old_files_;
};

template <typename Work>
DeltaInfo run_as_file_owner(const DeltaTask& task, const Work& work) {
  DeltaInfo info;
  run_as_owner(task.cache.options().disk_first_id + 1000, 1, [&](unsigned) { info = work(); });
  return info;
}

}  // namespace

DeltaInfo BaseTrees::write_delta_with_index(const std::string& repo, const std::string& from_commit,
                                            const std::string& to_commit, int upper_fd,
                                            BaseTreeInfo* shown) const {
  const std::string place = directory(repo, from_commit);
  const std::string old_index = base::read_file(
      files_of(place, read_manifest(place, from_commit)) + "/.git/index", kMaxIndexBytes);
  const DeltaTask task{cache_, repo, from_commit, to_commit, upper_fd};
  BaseTreeInfo info;
  const DeltaInfo delta =
      run_as_file_owner(task, [&] { return IndexedDelta(task, old_index).write(info); });
  if (shown) *shown = info;
  return delta;
}

}  // namespace moorage::repo_cache
