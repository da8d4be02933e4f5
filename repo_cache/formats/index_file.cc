#include "repo_cache/formats/index_file.h"

#include <arpa/inet.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/tree_diff.h"

namespace moorage::repo_cache {

namespace {

constexpr size_t kHeaderBytes = 12;
constexpr size_t kEntryBytes = 62;  // before the path
constexpr size_t kHashBytes = 20;
constexpr size_t kNameMask = 0xfff;

void put32(std::string& out, uint32_t value) {
  const uint32_t wire = htonl(value);
  out.append(reinterpret_cast<const char*>(&wire), sizeof wire);
}

uint32_t get32(std::string_view bytes, size_t at) {
  uint32_t wire = 0;
  memcpy(&wire, bytes.data() + at, sizeof wire);
  return ntohl(wire);
}

std::string sha1(std::string_view bytes) {
  std::string digest(kHashBytes, '\0');
  unsigned int length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()),
                 &length, EVP_sha1(), nullptr) != 1 ||
      length != kHashBytes) {
    throw Error(Code::unsupported, "this host's OpenSSL has no SHA-1, which git's index needs");
  }
  return digest;
}

// The extension, and the hash of everything before it.
void put_end(std::string& out, std::string_view cache_tree) {
  out += "TREE";
  put32(out, static_cast<uint32_t>(cache_tree.size()));
  out += cache_tree;
  out += sha1(out);
}

void put_oid(std::string& out, const git_oid& oid) {
  out.append(reinterpret_cast<const char*>(oid.id), kHashBytes);
}

// One to eight zero bytes, so that the next entry begins at a multiple of eight.
size_t padding(size_t entry_bytes) { return 8 - entry_bytes % 8; }

void put_entry(std::string& out, const ListedFile& file, const FileStat& stat) {
  put32(out, stat.mtime_s);  // ctime: not compared; git sets it to the file's
  put32(out, 0);
  put32(out, stat.mtime_s);
  put32(out, 0);
  put32(out, 0);  // device
  put32(out, 0);  // inode
  put32(out, file.mode);
  put32(out, 0);  // owner
  put32(out, 0);  // group
  put32(out, stat.size);
  put_oid(out, file.oid);
  const auto flags = static_cast<uint16_t>(std::min(file.path.size(), kNameMask));
  out += static_cast<char>(flags >> 8);
  out += static_cast<char>(flags & 0xff);
  out += file.path;
  out.append(padding(kEntryBytes + file.path.size()), '\0');
}

// The order of a directory's children in the cache tree, like git's memory.
bool precedes(std::string_view one, std::string_view other) {
  return one.size() != other.size() ? one.size() < other.size() : one < other;
}

void put_cache_node(std::string& out, std::string_view name, uint64_t files, size_t children,
                    const git_oid& oid) {
  out += name;
  out += '\0';
  out += std::to_string(files) + " " + std::to_string(children) + "\n";
  put_oid(out, oid);
}

// Depth first.
void put_cache_tree(std::string& out, const TreeListing& listing, uint32_t place) {
  const ListedDirectory& directory = listing.directories[place];
  const auto name_of = [&listing](uint32_t index) {
    const std::string& path = listing.directories[index].path;
    return std::string_view(path).substr(path.rfind('/') + 1);
  };
  put_cache_node(out, name_of(place), directory.files_below, directory.subdirectories.size(),
                 directory.oid);
  std::vector<uint32_t> children = directory.subdirectories;
  std::sort(children.begin(), children.end(),
            [&](uint32_t a, uint32_t b) { return precedes(name_of(a), name_of(b)); });
  for (uint32_t child : children) put_cache_tree(out, listing, child);
}

// A part of the cache tree of an old index.
struct CacheNode {
  std::string_view bytes;  // including everything below it
  git_oid oid{};
  uint64_t directories = 1;  // itself and those below
  uint64_t files = 0;
  std::map<std::string_view, uint32_t> children;
};

class CacheTree {
 public:
  // Without a valid cache tree every tree is read.
  explicit CacheTree(std::string_view extensions) {
    while (extensions.size() > 8) {
      const std::string_view name = extensions.substr(0, 4);
      const size_t size = get32(extensions, 4);
      if (size > extensions.size() - 8) return;
      if (name == "TREE") {
        rest_ = extensions.substr(8, size);
        if (!parse(0)) nodes_.clear();
        return;
      }
      extensions.remove_prefix(8 + size);
    }
  }
  const CacheNode* root() const { return nodes_.empty() ? nullptr : &nodes_.front(); }
  const CacheNode* child(const CacheNode* node, std::string_view name) const {
    if (node == nullptr) return nullptr;
    const auto found = node->children.find(name);
    return found == node->children.end() ? nullptr : &nodes_[found->second];
  }

 private:
  std::optional<uint64_t> number(char end) {
    const size_t size = rest_.find(end);
    if (size == 0 || size > 9) return std::nullopt;
    uint64_t value = 0;
    for (const char digit : rest_.substr(0, size)) {
      if (digit < '0' || digit > '9') return std::nullopt;
      value = value * 10 + static_cast<uint64_t>(digit - '0');
    }
    rest_.remove_prefix(size + 1);
    return value;
  }

  bool parse(size_t depth) {
    const std::string_view begin = rest_;
    const size_t name_bytes = rest_.find('\0');
    if (name_bytes == std::string_view::npos || depth > kMaxTreeDepth) return false;
    const size_t place = nodes_.size();
    nodes_.emplace_back();
    rest_.remove_prefix(name_bytes + 1);
    const auto files = number(' ');
    const auto children = files ? number('\n') : std::nullopt;
    if (!children || rest_.size() < kHashBytes) return false;
    nodes_[place].files = *files;
    memcpy(nodes_[place].oid.id, rest_.data(), kHashBytes);
    rest_.remove_prefix(kHashBytes);
    for (uint64_t i = 0; i < *children; ++i) {
      const size_t child = nodes_.size();
      const std::string_view name = rest_.substr(0, rest_.find('\0'));
      if (!parse(depth + 1)) return false;
      nodes_[place].children[name] = static_cast<uint32_t>(child);
      nodes_[place].directories += nodes_[child].directories;
    }
    nodes_[place].bytes = begin.substr(0, begin.size() - rest_.size());
    return true;
  }

  std::string_view rest_;
  std::vector<CacheNode> nodes_;
};

// The cache tree of a commit, reusing the equal parts of an old one.
class CacheTreeMerge {
 public:
  CacheTreeMerge(const CacheTree& old, const ReadTree& read_tree)
      : old_(old), read_tree_(read_tree) {}

  struct Below {
    uint64_t files = 0;
    uint64_t directories = 0;
  };
  Below put(std::string& out, std::string_view name, const git_oid& oid, const CacheNode* old) {
    if (old != nullptr && git_oid_equal(&old->oid, &oid)) {
      out += old->bytes;
      return {old->files, old->directories};
    }
    std::vector<IndexTreeEntry> children = read_tree_(oid);
    Below below{0, 1};
    below.files = std::erase_if(children, [](const auto& entry) { return !entry.is_tree; });
    std::sort(children.begin(), children.end(),
              [](const auto& a, const auto& b) { return precedes(a.name, b.name); });
    std::string inner;
    for (const IndexTreeEntry& child : children) {
      const Below part = put(inner, child.name, child.oid, old_.child(old, child.name));
      below.files += part.files;
      below.directories += part.directories;
    }
    put_cache_node(out, name, below.files, children.size(), oid);
    out += inner;
    return below;
  }

 private:
  const CacheTree& old_;
  const ReadTree& read_tree_;
};

size_t first_not_before(const std::vector<IndexedFile>& files, std::string_view path) {
  const auto found =
      std::lower_bound(files.begin(), files.end(), path,
                       [](const IndexedFile& file, std::string_view p) { return file.path < p; });
  return static_cast<size_t>(found - files.begin());
}

// Marks the old entries that are changed or absent in the new index.
std::vector<bool> find_replaced(const std::vector<IndexedFile>& files,
                                const IndexChanges& changes) {
  std::vector<bool> replaced(files.size(), false);
  const auto first = [&files](std::string_view path) { return first_not_before(files, path); };
  const auto drop = [&](const std::string& path) {
    const size_t at = first(path);
    if (at < files.size() && files[at].path == path) replaced[at] = true;
  };
  for (const auto& [path, entry] : changes.put) drop(path);
  for (const std::string& path : changes.gone) {
    drop(path);
    const std::string below = path + "/";
    for (size_t at = first(below); at < files.size() && files[at].path.starts_with(below); ++at)
      replaced[at] = true;
  }
  return replaced;
}

}  // namespace

std::string make_index(const TreeListing& listing, const std::vector<FileStat>& stats) {
  assert(stats.size() == listing.files.size());
  std::string out;
  size_t bytes = kHeaderBytes;
  for (const ListedFile& file : listing.files) bytes += kEntryBytes + file.path.size() + 8;
  out.reserve(bytes + listing.directories.size() * 64);
  out += "DIRC";
  put32(out, 2);
  put32(out, static_cast<uint32_t>(listing.files.size()));
  for (size_t i = 0; i < listing.files.size(); ++i) put_entry(out, listing.files[i], stats[i]);
  std::string cache_tree;
  put_cache_tree(cache_tree, listing, 0);
  put_end(out, cache_tree);
  return out;
}

std::vector<IndexedFile> read_index(std::string_view bytes) {
  const auto broken = [] { return Error(Code::corrupted, "the index of a base tree is damaged"); };
  if (bytes.size() < kHeaderBytes + kHashBytes || !bytes.starts_with("DIRC") ||
      get32(bytes, 4) != 2) {
    throw broken();
  }
  const std::string_view body = bytes.substr(0, bytes.size() - kHashBytes);
  if (sha1(body) != bytes.substr(body.size())) throw broken();
  const uint32_t count = get32(bytes, 8);
  std::vector<IndexedFile> files;
  files.reserve(std::min<size_t>(count, body.size() / kEntryBytes));  // limits a false count
  size_t at = kHeaderBytes;
  for (uint32_t i = 0; i < count; ++i) {
    if (at + kEntryBytes >= body.size()) throw broken();
    const size_t path_at = at + kEntryBytes;
    const size_t end = body.find('\0', path_at);
    if (end == std::string_view::npos) throw broken();
    IndexedFile file;
    file.at = at;
    file.path = body.substr(path_at, end - path_at);
    file.mode = get32(body, at + 24);
    file.stat = {get32(body, at + 8), get32(body, at + 36)};
    memcpy(file.oid.id, body.data() + at + 40, kHashBytes);
    files.push_back(file);
    at = end + padding(kEntryBytes + file.path.size());
  }
  return files;
}

std::vector<IndexTreeEntry> index_tree_entries(git_repository* repository, const git_oid& tree) {
  const GitTree found = read_tree(repository, tree);
  std::vector<IndexTreeEntry> entries;
  for (size_t n = 0; n < git_tree_entrycount(found.get()); ++n) {
    const git_tree_entry* entry = git_tree_entry_byindex(found.get(), n);
    entries.push_back({git_tree_entry_name(entry),
                       git_tree_entry_filemode(entry) == GIT_FILEMODE_TREE,
                       *git_tree_entry_id(entry)});
  }
  return entries;
}

MergedIndex merge_index(std::string_view old_bytes, const std::vector<IndexedFile>& old_files,
                        const IndexChanges& changes, const git_oid& root,
                        const ReadTree& read_tree) {
  const auto end_of = [&](size_t i) {
    return old_files[i].at + kEntryBytes + old_files[i].path.size() +
           padding(kEntryBytes + old_files[i].path.size());
  };
  MergedIndex merged;
  merged.replaced = find_replaced(old_files, changes);
  const std::vector<bool>& replaced = merged.replaced;
  std::string& out = merged.bytes;
  out.reserve(old_bytes.size() + changes.put.size() * 128);
  out += "DIRC";
  put32(out, 2);
  put32(out, 0);
  uint32_t count = 0;
  auto fresh = changes.put.begin();
  const auto put_fresh = [&] {
    const auto& [path, entry] = *fresh++;
    put_entry(out, ListedFile{path, 0, entry.mode, entry.oid}, entry.stat);
    ++count;
  };
  // Copies each run of old entries at once.
  size_t run = 0;
  const auto copy_until = [&](size_t end) {
    if (run < end) out += old_bytes.substr(old_files[run].at, end_of(end - 1) - old_files[run].at);
    run = end;
  };
  const auto pass_old = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (!replaced[i]) {
        ++count;
        continue;
      }
      copy_until(i);
      run = i + 1;
    }
  };
  size_t at = 0;
  while (fresh != changes.put.end()) {
    const size_t next = first_not_before(old_files, fresh->first);
    pass_old(at, next);
    copy_until(next);
    at = next;
    put_fresh();
  }
  pass_old(at, old_files.size());
  copy_until(old_files.size());
  const uint32_t wire = htonl(count);
  memcpy(out.data() + 8, &wire, sizeof wire);

  const size_t extensions_at = old_files.empty() ? kHeaderBytes : end_of(old_files.size() - 1);
  const CacheTree old(
      old_bytes.substr(extensions_at, old_bytes.size() - kHashBytes - extensions_at));
  std::string cache_tree;
  const auto below = CacheTreeMerge(old, read_tree).put(cache_tree, "", root, old.root());
  if (below.files != count)
    throw Error(Code::corrupted, "the index of a base tree does not fit its commit");
  merged.directories = below.directories - 1;
  put_end(out, cache_tree);
  return merged;
}

}  // namespace moorage::repo_cache
