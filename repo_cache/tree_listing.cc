#include "repo_cache/tree_listing.h"

#include <array>

#include "base/error.h"
#include "base/log.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/tree_diff.h"

namespace moorage::repo_cache {

namespace {

constexpr size_t kMaxNameBytes = 255;
// A few small trees that contain each other may describe any number of paths, all held in memory:
// about 150 bytes each, plus the path.
constexpr size_t kMaxEntries = 5'000'000;
constexpr size_t kMaxPathsBytes = 512 << 20;

// HFS+ ignores these code points in names, so ".g<U+200C>it" is ".git" there.
size_t ignorable_bytes(std::string_view text) {
  static constexpr std::array<std::string_view, 16> kIgnorable = {
      "\u200c", "\u200d", "\u200e", "\u200f", "\u202a", "\u202b", "\u202c", "\u202d",
      "\u202e", "\u206a", "\u206b", "\u206c", "\u206d", "\u206e", "\u206f", "\ufeff"};
  for (std::string_view bytes : kIgnorable) {
    if (text.starts_with(bytes)) return bytes.size();
  }
  return 0;
}

std::string fold(std::string_view name) {
  std::string result;
  while (!name.empty()) {
    if (const size_t skip = ignorable_bytes(name)) {
      name.remove_prefix(skip);
      continue;
    }
    const char c = name.front();
    result += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    name.remove_prefix(1);
  }
  return result;
}

// NTFS drops dots and spaces at the end, treats text after ":" as a stream and "\" as a separator,
// and has short names.
bool is_ntfs_spelling(const std::string& folded, std::string_view name,
                      std::string_view short_name) {
  for (std::string_view start : {name, short_name}) {
    if (!folded.starts_with(start)) continue;
    const size_t end = folded.find_first_not_of(". ", start.size());
    if (end == std::string::npos || folded[end] == ':' || folded[end] == '\\') return true;
  }
  return false;
}

class Lister {
 public:
  Lister(git_repository* repository, TreeListing& listing)
      : repository_(repository), listing_(listing) {}

  // Returns the directory's place in the listing.
  uint32_t list(const git_oid& oid, const std::string& path, size_t depth) {
    if (depth > kMaxTreeDepth) refuse_path(path, "more than 1000 directories deep");
    count(path);
    const auto here = static_cast<uint32_t>(listing_.directories.size());
    listing_.directories.push_back({path, oid, 0, {}});
    git_tree* raw = nullptr;
    check_git_object(git_tree_lookup(&raw, repository_, &oid),
                     "read the tree of \"" + base::escape_for_message(path) + "\"");
    const GitTree tree(raw);
    const size_t count = git_tree_entrycount(raw);
    uint32_t below = 0;
    for (size_t i = 0; i < count; ++i) {
      below += take(here, path, git_tree_entry_byindex(raw, i), depth);
    }
    listing_.directories[here].files_below = below;
    return here;
  }

 private:
  uint32_t take(uint32_t here, const std::string& directory, const git_tree_entry* entry,
                size_t depth) {
    const std::string_view name = git_tree_entry_name(entry);
    const auto mode = static_cast<uint32_t>(git_tree_entry_filemode(entry));
    std::string path = checked_path(directory, name, mode);
    const git_oid& oid = *git_tree_entry_id(entry);
    if (mode == GIT_FILEMODE_TREE) {
      const uint32_t child = list(oid, path, depth + 1);
      listing_.directories[here].subdirectories.push_back(child);
      return listing_.directories[child].files_below;
    }
    auto& files = listing_.files;
    if (!files.empty() && files.back().path >= path) refuse_path(path, "entries out of order");
    count(path);
    const auto name_at = static_cast<uint32_t>(path.size() - name.size());
    files.push_back({std::move(path), name_at, mode, oid});
    return 1;
  }

  void count(const std::string& path) {
    paths_bytes_ += path.size();
    const size_t entries = listing_.files.size() + listing_.directories.size();
    if (entries < kMaxEntries && paths_bytes_ <= kMaxPathsBytes) return;
    throw Error(Code::resource_exhausted,
                "the tree of the commit has too many files and directories (" +
                    std::to_string(entries) + " so far)",
                "the commit is broken or hostile; choose another one");
  }

  git_repository* repository_;
  TreeListing& listing_;
  size_t paths_bytes_ = 0;
};

}  // namespace

void refuse_path(std::string_view path, const std::string& why) {
  throw Error(Code::invalid_argument,
              "the repository has a path that must not be created: \"" +
                  base::escape_for_message(path) + "\" (" + why + ")",
              "the commit is broken or hostile; choose another one");
}

void check_entry_name(std::string_view directory, std::string_view name, uint32_t mode) {
  const auto whole = [&] { return child_path(std::string(directory), name); };
  if (name.empty()) refuse_path(whole(), "empty name");
  if (name == "." || name == "..") refuse_path(whole(), "points at a directory");
  if (name.find('/') != std::string_view::npos) refuse_path(whole(), "slash in a name");
  if (name.size() > kMaxNameBytes) refuse_path(whole(), "name longer than 255 bytes");
  // Folding is expensive: only names with a suspicious first byte need it.
  const unsigned char first = static_cast<unsigned char>(name.front());
  if (first != '.' && first != 'g' && first != 'G' && first != 0xe2 && first != 0xef) return;
  const std::string folded = fold(name);
  if (is_ntfs_spelling(folded, ".git", "git~1")) refuse_path(whole(), "stands for .git");
  if (mode == kModeSymlink && is_ntfs_spelling(folded, ".gitmodules", "gitmod~1")) {
    refuse_path(whole(), ".gitmodules as a symlink");
  }
}

std::string child_path(const std::string& directory, std::string_view name) {
  std::string path = directory;
  if (!path.empty()) path += '/';
  path += name;
  return path;
}

std::string checked_path(const std::string& directory, std::string_view name, uint32_t mode) {
  check_entry_name(directory, name, mode);
  std::string path = child_path(directory, name);
  if (path.size() > kMaxPathBytes) refuse_path(path, "longer than 4095 bytes");
  if (mode != GIT_FILEMODE_TREE && mode != kModeFile && mode != kModeExecutable &&
      mode != kModeSymlink && mode != kModeSubmodule) {
    refuse_path(path, "unknown kind of entry");
  }
  return path;
}

TreeListing list_tree(git_repository* repository, const std::string& commit) {
  const GitTree root = find_commit_tree(repository, commit);
  TreeListing listing;
  Lister(repository, listing).list(*git_tree_id(root.get()), "", 0);
  return listing;
}

}  // namespace moorage::repo_cache
