#include "repo_cache/memory_tree.h"

#include <git2/sys/mempack.h>
#include <git2/sys/odb_backend.h>
#include <sys/stat.h>

#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "repo_cache/tree_listing.h"
#include "repo_cache/worktree_filter.h"

namespace moorage::repo_cache {

namespace {

using base::Code;
using base::Error;

constexpr int kBeforeAllOthers = 999;
constexpr size_t kMaxAttributeBytes = 1 << 20;

// The changes as a tree of names.
struct Node {
  std::map<std::string, Node> children;
  bool removed = false;
  std::optional<git_oid> blob;
  uint32_t mode = 0;
};

bool nameable(const std::string& path, uint32_t mode) {
  try {
    for (size_t at = 0; at <= path.size();) {
      const size_t end = std::min(path.find('/', at), path.size());
      check_entry_name("", std::string_view(path).substr(at, end - at), mode);
      at = end + 1;
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::optional<std::string> blob_at(git_repository* repository, git_tree* root,
                                   const std::string& path) {
  git_tree_entry* raw = nullptr;
  if (git_tree_entry_bypath(&raw, root, path.c_str()) < 0) return std::nullopt;
  const GitTreeEntry entry(raw);
  if (git_tree_entry_type(raw) != GIT_OBJECT_BLOB) return std::nullopt;
  const GitOdb odb = open_odb(repository);
  git_odb_object* object = nullptr;
  check_git_object(git_odb_read(&object, odb.get(), git_tree_entry_id(raw)),
                   "read \"" + base::escape_for_message(path) + "\"");
  const GitOdbObject owner(object);
  return std::string(static_cast<const char*>(git_odb_object_data(object)),
                     git_odb_object_size(object));
}

class Builder {
 public:
  Builder(const MemoryRepository& repository, git_tree* root, const DiffLimits& limits,
          Oversized oversized)
      : repository_(repository),
        root_(root),
        limits_(limits),
        oversized_(oversized),
        attributes_(repository.get(), root) {}

  GitTree build(std::vector<Change> changes) {
    std::erase_if(changes,
                  [](const Change& change) { return !nameable(change.path, change.mode); });
    take_attributes(changes);
    Node top;
    for (Change& change : changes) {
      Node* node = &top;
      for (size_t at = 0; at <= change.path.size();) {
        const size_t end = std::min(change.path.find('/', at), change.path.size());
        node = &node->children[change.path.substr(at, end - at)];
        at = end + 1;
      }
      if (change.removed) {
        node->removed = true;
      } else {
        node->blob = make_blob(change);
        node->mode = change.mode;
      }
    }
    git_oid oid;
    if (!apply(root_, top, oid)) oid = empty_tree();
    git_tree* tree = nullptr;
    check_git(git_tree_lookup(&tree, repository_.get(), &oid), "look up the changed tree");
    return GitTree(tree);
  }

 private:
  // .gitattributes among the changes decide about the other changes, so they are read first.
  void take_attributes(std::vector<Change>& changes) {
    for (Change& change : changes) {
      const std::string_view path = change.path;
      const size_t name_at = path.rfind('/') + 1;  // 0 without a slash
      if (path.substr(name_at) != ".gitattributes") continue;
      const std::string directory(path.substr(0, name_at ? name_at - 1 : 0));
      std::string bytes;
      if (!change.removed)
        bytes = read_content(change.content(), limits_.max_file_bytes, change.path);
      attributes_.replace(directory,
                          bytes.size() <= kMaxAttributeBytes ? bytes : std::string_view{});
      change.content = [bytes]() -> Content { return bytes; };
    }
  }

  git_oid make_blob(Change& change) {
    std::string bytes;
    try {
      bytes = read_content(change.content(), limits_.max_file_bytes, change.path);
    } catch (const Error& error) {
      if (error.code() != Code::resource_exhausted || oversized_ == Oversized::refuse) throw;
      bytes = std::string("\0too large to compare", 21);
      if (oversized_ == Oversized::another_stand_in) bytes += "!";
    }
    if (change.mode != kModeSymlink) convert(change.path, bytes);
    git_oid oid;
    check_git(git_odb_write(&oid, repository_.odb(), bytes.data(), bytes.size(), GIT_OBJECT_BLOB),
              "keep a file");
    return oid;
  }

  void convert(const std::string& path, std::string& bytes) {
    const Conversion conversion = attributes_.conversion(path);
    if (!conversion.changes_bytes()) return;
    const std::optional<std::string> committed = blob_at(repository_.get(), root_, path);
    std::optional<std::string_view> view;
    if (committed) view = *committed;
    if (auto converted = to_blob(conversion, bytes, view)) bytes = std::move(*converted);
  }

  git_oid empty_tree() {
    git_oid oid;
    check_git(git_odb_write(&oid, repository_.odb(), "", 0, GIT_OBJECT_TREE),
              "write an empty tree");
    return oid;
  }

  GitTree subtree(git_tree* parent, const std::string& name) {
    const git_tree_entry* entry = parent ? git_tree_entry_byname(parent, name.c_str()) : nullptr;
    if (!entry || git_tree_entry_type(entry) != GIT_OBJECT_TREE) return nullptr;
    git_tree* tree = nullptr;
    check_git_object(git_tree_lookup(&tree, repository_.get(), git_tree_entry_id(entry)),
                     "read a tree");
    return GitTree(tree);
  }

  void apply_child(git_treebuilder* builder, git_tree* before, const std::string& name,
                   const Node& child) {
    const auto insert = [&](const git_oid& id, uint32_t mode) {
      check_git(git_treebuilder_insert(nullptr, builder, name.c_str(), &id,
                                       static_cast<git_filemode_t>(mode)),
                "build a tree");
    };
    if (child.blob) return insert(*child.blob, child.mode);
    const GitTree old = child.removed ? nullptr : subtree(before, name);
    git_oid below;
    if (!child.children.empty() && apply(old.get(), child, below))
      return insert(below, GIT_FILEMODE_TREE);
    const bool there = git_treebuilder_get(builder, name.c_str()) != nullptr;
    if (there && (child.removed || old)) {
      check_git(git_treebuilder_remove(builder, name.c_str()), "build a tree");
    }
  }

  // False: nothing is left in it, and git has no empty directories.
  bool apply(git_tree* before, const Node& node, git_oid& oid) {
    git_treebuilder* raw = nullptr;
    check_git(git_treebuilder_new(&raw, repository_.get(), before), "build a tree");
    const GitTreeBuilder builder(raw);
    for (const auto& [name, child] : node.children) apply_child(raw, before, name, child);
    if (git_treebuilder_entrycount(raw) == 0) return false;
    check_git(git_treebuilder_write(&oid, raw), "build a tree");
    return true;
  }

  const MemoryRepository& repository_;
  git_tree* root_;
  const DiffLimits& limits_;
  Oversized oversized_;
  PathAttributes attributes_;
};

}  // namespace

MemoryRepository::MemoryRepository(const std::string& git_directory)
    : repository_(open_mirror(git_directory)), odb_(open_odb(repository_.get())) {
  check_git(git_mempack_new(&mempack_), "make an object store in memory");
  const int answer = git_odb_add_backend(odb_.get(), mempack_, kBeforeAllOthers);
  if (answer < 0) mempack_->free(mempack_);
  check_git(answer, "use an object store in memory");
}

void MemoryRepository::forget_writes() const {
  check_git(git_mempack_reset(mempack_), "empty the object store");
}

void PathAttributes::replace(const std::string& directory, std::string_view bytes) {
  loaded_[directory] = true;
  attributes_.add(directory, bytes);
}

void PathAttributes::load(const std::string& directory) {
  if (!loaded_.emplace(directory, true).second) return;
  const std::string path = directory.empty() ? ".gitattributes" : directory + "/.gitattributes";
  const std::optional<std::string> bytes = blob_at(repository_, root_, path);
  if (bytes && bytes->size() <= kMaxAttributeBytes) attributes_.add(directory, *bytes);
}

Conversion PathAttributes::conversion(const std::string& path) {
  load("");
  for (size_t slash = path.find('/'); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    load(path.substr(0, slash));
  }
  return attributes_.conversion(path);
}

std::string read_content(Content content, uint64_t max_bytes, const std::string& path) {
  const auto check_size = [&](uint64_t size) {
    if (size <= max_bytes) return;
    throw Error(Code::resource_exhausted, "\"" + base::escape_for_message(path) +
                                              "\" is larger than " + std::to_string(max_bytes) +
                                              " bytes and cannot go into a diff");
  };
  if (auto* bytes = std::get_if<std::string>(&content)) {
    check_size(bytes->size());
    return std::move(*bytes);
  }
  const int fd = std::get<base::Fd>(content).get();
  struct stat status {};
  base::check(fstat(fd, &status), "look at a file");
  if (!S_ISREG(status.st_mode)) throw Error(Code::invalid_argument, "not a regular file");
  check_size(static_cast<uint64_t>(status.st_size));
  // It may grow meanwhile: one byte more than allowed is enough to know.
  std::string bytes = base::read_at(fd, static_cast<size_t>(status.st_size) + 1, 0);
  check_size(bytes.size());
  return bytes;
}

GitTree apply_changes(const MemoryRepository& repository, git_tree* root,
                      std::vector<Change> changes, const DiffLimits& limits, Oversized oversized) {
  return Builder(repository, root, limits, oversized).build(std::move(changes));
}

}  // namespace moorage::repo_cache
