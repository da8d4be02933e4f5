#include "repo_cache/memory_tree.h"

#include <git2/sys/mempack.h>
#include <git2/sys/odb_backend.h>
#include <openssl/evp.h>
#include <sys/stat.h>

#include <algorithm>
#include <cassert>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/parts.h"
#include "repo_cache/formats/worktree_filter.h"
#include "repo_cache/tree_listing.h"

namespace moorage::repo_cache {

namespace {

constexpr int kBeforeAllOthers = 999;
// Memory of a change besides its contents: in the lists of changes and paths, the new tree, the
// difference and the answer.
constexpr uint64_t kChangeBytes = 768;
constexpr uint64_t kNodeBytes = 192;
constexpr uint64_t kHashedPieceBytes = 256 << 10;

// The changes as a tree of names.
struct Node {
  std::map<std::string, Node> children;
  bool removed = false;
  std::optional<git_oid> blob;
  uint32_t mode = 0;
};

bool nameable(const std::string& path, uint32_t mode) {
  try {
    for (const std::string_view name : base::split(path, '/')) check_entry_name("", name, mode);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// nullopt: missing or too large.
std::optional<std::string> blob_at(git_repository* repository, git_tree* root,
                                   const std::string& path, uint64_t max_bytes) {
  const GitTreeEntry entry = entry_at(root, path);
  if (!entry || git_tree_entry_type(entry.get()) != GIT_OBJECT_BLOB) return std::nullopt;
  const GitOdb odb = open_odb(repository);
  const git_oid* oid = git_tree_entry_id(entry.get());
  if (blob_size(odb.get(), *oid) > max_bytes) return std::nullopt;
  return std::string(
      content_of(read_object(odb.get(), *oid, "read \"" + base::escape_for_message(path) + "\"")));
}

void require_hash(int result) {
  if (result == 1) return;
  throw Error(Code::unsupported, "this host's OpenSSL has no SHA-1, which git needs");
}

class Builder {
 public:
  Builder(const MemoryRepository& repository, git_tree* root, const DiffLimits& limits,
          StandIn stand_in, DiffMemory& memory)
      : repository_(repository),
        root_(root),
        limits_(limits),
        stand_in_(stand_in),
        memory_(memory),
        bytes_left_(limits.max_changed_bytes),
        attributes_(repository.get(), root, memory.memory()) {
    attributes_.set_deadline(limits.deadline);
  }

  ChangedTree build(std::vector<Change> changes, const std::vector<Change>& attributes) {
    std::erase_if(changes, [this](const Change& change) {
      if (nameable(change.path, change.mode)) return false;
      if (!change.removed) refused_[change.path] = size_of(change.content());
      return true;
    });
    for (const Change& change : changes) {
      const auto parts = std::count(change.path.begin(), change.path.end(), '/') + 1;
      memory_.take(kChangeBytes + 4 * change.path.size() + parts * kNodeBytes);
    }
    for (const Change& change : attributes) take_attributes(change);
    Node top;
    for (Change& change : changes) {
      Node* node = &top;
      for (const std::string_view name : base::split(change.path, '/'))
        node = &node->children[std::string(name)];
      if (change.removed) {
        node->removed = true;
      } else {
        node->blob = make_blob(change);
        node->mode = change.mode;
      }
    }
    git_oid oid;
    if (!apply(root_, top, oid)) oid = empty_tree();
    return {make_git<GitTree>("read the changed tree", git_tree_lookup, repository_.get(), &oid),
            std::move(stand_ins_), std::move(refused_), std::move(unfaithful_),
            limits_.max_changed_bytes - bytes_left_};
  }

 private:
  void take_attributes(const Change& change) {
    const size_t slash = change.path.rfind('/');
    const std::string directory = slash == std::string::npos ? "" : change.path.substr(0, slash);
    attributes_.add(directory, change.removed ? "" : attributes_of(change.content()));
  }

  std::string attributes_of(const Content& content) const {
    constexpr uint64_t kMost = PathAttributes::kMaxFileBytes;
    if (const auto* stored = std::get_if<Stored>(&content)) {
      const git_oid oid = parse_oid(stored->oid);
      if (blob_size(repository_.odb(), oid) > kMost) return "";
      return std::string(content_of(read_object(repository_.odb(), oid)));
    }
    if (const auto* bytes = std::get_if<std::string>(&content)) {
      return bytes->size() > kMost ? "" : *bytes;
    }
    const int fd = std::get<Fd>(content).get();
    const uint64_t size = file_size(fd);
    return size > kMost ? "" : base::read_at(fd, size, 0);
  }

  git_oid make_blob(const Change& change) {
    const Content content = change.content();
    uint64_t size = 0;
    try {
      size = size_of(content);
      return keep(change, content, size);
    } catch (const Error& error) {
      if (error.code() != Code::resource_exhausted) throw;
    }
    check_attributes();  // a refusal because of the rules has nothing to do with this file's size
    stand_ins_[change.path] = size;
    std::string bytes("\0too large to compare", 21);
    if (stand_in_ == StandIn::after) bytes += "!";
    return write(bytes);
  }

  git_oid keep(const Change& change, const Content& content, uint64_t size) {
    Conversion conversion;
    if (change.mode != kModeSymlink) conversion = attributes_.conversion(change.path);
    check_attributes();
    const bool converted = changes_bytes(conversion, size);
    const bool too_large_to_convert = conversion.changes_bytes() && !converted;
    if (!conversion.filter.empty() || too_large_to_convert) unfaithful_.insert(change.path);
    if (const auto* stored = std::get_if<Stored>(&content); stored && !converted)
      return parse_oid(stored->oid);
    charge(change.path, size);
    const base::MemoryShare second(memory_.memory(), size);  // its copy in the object store
    if (!second) throw_no_memory(memory_.memory());
    const std::string bytes = read(content, size);
    if (!converted) return write(bytes);
    const GitTreeEntry before = entry_at(root_, change.path);
    const bool file = before && git_tree_entry_type(before.get()) == GIT_OBJECT_BLOB;
    const auto clean = to_git(repository_, conversion, bytes,
                              file ? git_tree_entry_id(before.get()) : nullptr, memory_.memory());
    if (clean && clean->size() > size) memory_.take(clean->size() - size);
    const git_oid id = write(clean ? *clean : bytes);
    if (stand_in_ == StandIn::after && !gives_back(conversion, clean ? *clean : bytes, id, bytes))
      unfaithful_.insert(change.path);
    return id;
  }

  // Whether a checkout of the blob writes these bytes.
  bool gives_back(const Conversion& conversion, std::string_view blob, const git_oid& id,
                  std::string_view bytes) {
    constexpr uint64_t kAtOnce = 4;  // steps of a conversion, for up to twice the size
    const base::MemoryShare share(memory_.memory(), kAtOnce * blob.size());
    if (!share) throw_no_memory(memory_.memory());
    const auto written = to_worktree(conversion, blob, format_oid(id));
    return (written ? std::string_view(*written) : blob) == bytes;
  }

  void check_attributes() const {
    if (!attributes_.incomplete()) return;
    throw Error(Code::resource_exhausted,
                "the .gitattributes rules take too much memory or time for a patch",
                "use fewer and simpler rules");
  }

  void charge(const std::string& path, uint64_t size) {
    if (size > limits_.max_file_bytes) {
      throw Error(Code::resource_exhausted,
                  "\"" + base::escape_for_message(path) + "\" is larger than " +
                      std::to_string(limits_.max_file_bytes) + " bytes and cannot go into a diff");
    }
    if (size > bytes_left_) {
      throw Error(Code::resource_exhausted, "the changed files are too large for a patch",
                  "copy large files out of the workspace with cp, and remove them");
    }
    memory_.take(size);
    bytes_left_ -= size;
  }

  static uint64_t file_size(int fd) {
    struct stat status {};
    base::check(fstat(fd, &status), "inspect a file");
    if (!S_ISREG(status.st_mode)) throw Error(Code::invalid_argument, "a diff needs regular files");
    return static_cast<uint64_t>(status.st_size);
  }

  uint64_t size_of(const Content& content) const {
    if (const auto* bytes = std::get_if<std::string>(&content)) return bytes->size();
    if (const auto* fd = std::get_if<Fd>(&content)) return file_size(fd->get());
    return blob_size(repository_.odb(), parse_oid(std::get<Stored>(content).oid));
  }

  // Reads the charged size, even if the file has grown.
  std::string read(const Content& content, uint64_t size) const {
    if (const auto* bytes = std::get_if<std::string>(&content)) return *bytes;
    if (const auto* fd = std::get_if<Fd>(&content)) return base::read_at(fd->get(), size, 0);
    return std::string(content_of(
        read_object(repository_.odb(), parse_oid(std::get<Stored>(content).oid), "read a file")));
  }

  git_oid write(std::string_view bytes) const {
    git_oid oid;
    check_git(git_odb_write(&oid, repository_.odb(), bytes.data(), bytes.size(), GIT_OBJECT_BLOB),
              "store a file for the diff");
    return oid;
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
    return read_tree(repository_.get(), *git_tree_entry_id(entry));
  }

  void apply_child(git_treebuilder* builder, git_tree* before, const std::string& name,
                   const Node& child) {
    const auto insert = [&](const git_oid& id, uint32_t mode) {
      check_git(git_treebuilder_insert(nullptr, builder, name.c_str(), &id,
                                       static_cast<git_filemode_t>(mode)),
                "build a diff");
    };
    if (child.blob) return insert(*child.blob, child.mode);
    const GitTree old = child.removed ? nullptr : subtree(before, name);
    git_oid below;
    if (!child.children.empty() && apply(old.get(), child, below))
      return insert(below, GIT_FILEMODE_TREE);
    const bool there = git_treebuilder_get(builder, name.c_str()) != nullptr;
    if (there && (child.removed || old)) {
      check_git(git_treebuilder_remove(builder, name.c_str()), "build a diff");
    }
  }

  // False: it is empty, and git has no empty directories.
  bool apply(git_tree* before, const Node& node, git_oid& oid) {
    const auto builder =
        make_git<GitTreeBuilder>("build a diff", git_treebuilder_new, repository_.get(), before);
    for (const auto& [name, child] : node.children) apply_child(builder.get(), before, name, child);
    if (git_treebuilder_entrycount(builder.get()) == 0) return false;
    check_git(git_treebuilder_write(&oid, builder.get()), "build a diff");
    return true;
  }

  const MemoryRepository& repository_;
  git_tree* root_;
  const DiffLimits& limits_;
  StandIn stand_in_;
  DiffMemory& memory_;
  uint64_t bytes_left_;
  std::map<std::string, uint64_t> stand_ins_;
  std::map<std::string, uint64_t> refused_;
  std::set<std::string> unfaithful_;
  PathAttributes attributes_;
};

}  // namespace

MemoryRepository::MemoryRepository(const std::string& git_directory)
    : repository_(open_mirror(git_directory)), odb_(open_odb(repository_.get())) {
  check_git(git_mempack_new(&mempack_), "create an object store in memory");
  const int answer = git_odb_add_backend(odb_.get(), mempack_, kBeforeAllOthers);
  if (answer < 0) mempack_->free(mempack_);
  check_git(answer, "use an object store in memory");
}

void MemoryRepository::forget_writes() const noexcept {
  [[maybe_unused]] const int answer = git_mempack_reset(mempack_);
  assert(answer == 0);  // frees the memory
}

uint64_t blob_size(git_odb* odb, const git_oid& oid) {
  size_t size = 0;
  git_object_t type = GIT_OBJECT_INVALID;
  check_git_object(git_odb_read_header(&size, &type, odb, &oid), "find a file of the commit");
  return size;
}

std::optional<git_oid> blob_id(int fd, uint64_t size, TimeLimit deadline) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(),
                                                                     EVP_MD_CTX_free);
  require_hash(EVP_DigestInit_ex(hash.get(), EVP_sha1(), nullptr));
  const std::string header = "blob " + std::to_string(size);
  require_hash(EVP_DigestUpdate(hash.get(), header.c_str(), header.size() + 1));
  for (uint64_t at = 0; at < size;) {
    if (std::chrono::steady_clock::now() > deadline) return std::nullopt;
    const std::string piece = base::read_at(fd, std::min(kHashedPieceBytes, size - at), at);
    if (piece.empty()) return std::nullopt;
    require_hash(EVP_DigestUpdate(hash.get(), piece.data(), piece.size()));
    at += piece.size();
  }
  git_oid oid;
  static_assert(sizeof oid.id == 20);
  require_hash(EVP_DigestFinal_ex(hash.get(), oid.id, nullptr));
  return oid;
}

GitTreeEntry entry_at(git_tree* root, const std::string& path) {
  git_tree_entry* entry = nullptr;
  if (path.empty() || path.find('\0') != std::string::npos) return nullptr;
  const int answer = git_tree_entry_bypath(&entry, root, path.c_str());
  if (answer == GIT_ENOTFOUND) return nullptr;
  check_git(answer, "find \"" + base::escape_for_message(path) + "\"");
  return GitTreeEntry(entry);
}

void throw_no_memory(const base::LookMemory& memory) {
  if (!memory.crowded()) {
    throw Error(Code::resource_exhausted, "too many changes for a patch",
                "name some paths, copy the files out with moorage cp, or list them in .gitignore");
  }
  throw Error(Code::resource_exhausted, "too many comparisons are running",
              "try again in a minute");
}

void DiffMemory::take(uint64_t bytes) {
  if (!memory_.take(bytes)) throw_no_memory(memory_);
}

void PathAttributes::add(const std::string& directory, std::string_view bytes) {
  constexpr uint64_t kDirectoryBytes = 256;  // its nodes in two maps
  if (!memory_.take(Attributes::memory_bytes(bytes) + kDirectoryBytes + 2 * directory.size())) {
    left_out_ = true;
    return;
  }
  known_.insert(directory);
  attributes_.add(directory, bytes);
}

void PathAttributes::load(const std::string& directory) {
  if (known_.contains(directory)) return;
  const std::string path = directory.empty() ? ".gitattributes" : directory + "/.gitattributes";
  if (const auto bytes = blob_at(repository_, root_, path, kMaxFileBytes)) add(directory, *bytes);
}

bool PathAttributes::is_directory(const std::string& path) const {
  const GitTreeEntry entry = entry_at(root_, path);
  return entry && git_tree_entry_type(entry.get()) == GIT_OBJECT_TREE;
}

bool PathAttributes::incomplete() const {
  return left_out_ || (attributes_.relevant() && std::chrono::steady_clock::now() > deadline_);
}

Conversion PathAttributes::conversion(const std::string& path) {
  if (!root_loaded_) load("");
  root_loaded_ = true;
  for (size_t slash = path.find('/'); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    if (last_.compare(0, slash + 1, path, 0, slash + 1) == 0) continue;
    const std::string directory = path.substr(0, slash);
    if (!is_directory(directory)) break;  // neither has the commit below it
    load(directory);
  }
  last_ = path;
  return attributes_.conversion(path);
}

bool changes_bytes(const Conversion& conversion, uint64_t size) {
  return conversion.changes_bytes() && size <= kMaxConvertedBytes;
}

std::optional<std::string> to_git(const MemoryRepository& repository, const Conversion& conversion,
                                  std::string_view bytes, const git_oid* committed,
                                  base::LookMemory& memory) {
  // Memory of the conversion: two steps at the same time, and growing strings.
  const uint64_t times = conversion.encoding.empty() ? 3 : 8;
  const bool automatic =
      conversion.line_ends == LineEnds::auto_lf || conversion.line_ends == LineEnds::auto_crlf;
  uint64_t before = 0;
  if (committed && automatic) before = blob_size(repository.odb(), *committed);
  if (before > kMaxConvertedBytes) return std::nullopt;
  const base::MemoryShare share(memory, bytes.size() * times + before);
  if (!share) throw_no_memory(memory);
  if (!committed || !automatic) return to_blob(conversion, bytes, std::nullopt);
  const GitOdbObject object = read_object(repository.odb(), *committed);
  return to_blob(conversion, bytes, content_of(object).substr(0, before));
}

std::vector<Change> attributes_among(const std::vector<Change>& changes) {
  std::vector<Change> found;
  for (const Change& change : changes) {
    const std::string_view path = change.path;
    if (path.substr(path.rfind('/') + 1) != ".gitattributes") continue;
    if (nameable(change.path, change.mode)) found.push_back(change);
  }
  return found;
}

ChangedTree apply_changes(const MemoryRepository& repository, git_tree* root,
                          std::vector<Change> changes, const std::vector<Change>& attributes,
                          const DiffLimits& limits, StandIn stand_in, DiffMemory& memory) {
  return Builder(repository, root, limits, stand_in, memory).build(std::move(changes), attributes);
}

}  // namespace moorage::repo_cache
