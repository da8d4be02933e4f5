#include "repo_cache/index_file.h"

#include <arpa/inet.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/error.h"
#include "repo_cache/tree_diff.h"

namespace moorage::repo_cache {

namespace {

using base::Code;
using base::Error;

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

void put_oid(std::string& out, const git_oid& oid) {
  out.append(reinterpret_cast<const char*>(oid.id), kHashBytes);
}

// One to eight zero bytes, so that the next entry begins at a multiple of eight.
size_t padding(size_t entry_bytes) { return 8 - entry_bytes % 8; }

void put_entry(std::string& out, const ListedFile& file, const FileStat& stat) {
  put32(out, stat.mtime_s);  // ctime: not compared; git itself fills it with the file's
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

// Depth first; below one directory by length of the name, then by bytes, as git keeps them in
// memory.
void put_cache_tree(std::string& out, const TreeListing& listing, uint32_t place) {
  const ListedDirectory& directory = listing.directories[place];
  const auto name_of = [&listing](uint32_t index) {
    const std::string& path = listing.directories[index].path;
    return std::string_view(path).substr(path.rfind('/') + 1);
  };
  out += name_of(place);
  out += '\0';
  out += std::to_string(directory.files_below) + " " +
         std::to_string(directory.subdirectories.size()) + "\n";
  put_oid(out, directory.oid);
  std::vector<uint32_t> children = directory.subdirectories;
  std::sort(children.begin(), children.end(), [&](uint32_t a, uint32_t b) {
    const std::string_view x = name_of(a);
    const std::string_view y = name_of(b);
    return x.size() != y.size() ? x.size() < y.size() : x < y;
  });
  for (uint32_t child : children) put_cache_tree(out, listing, child);
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
  out += "TREE";
  put32(out, static_cast<uint32_t>(cache_tree.size()));
  out += cache_tree;
  out += sha1(out);
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
  files.reserve(std::min<size_t>(count, body.size() / kEntryBytes));  // whatever it says
  size_t at = kHeaderBytes;
  for (uint32_t i = 0; i < count; ++i) {
    if (at + kEntryBytes >= body.size()) throw broken();
    const size_t path_at = at + kEntryBytes;
    const size_t end = body.find('\0', path_at);
    if (end == std::string_view::npos) throw broken();
    IndexedFile file;
    file.path = body.substr(path_at, end - path_at);
    file.mode = get32(body, at + 24);
    file.stat = {get32(body, at + 8), get32(body, at + 36)};
    memcpy(file.oid.id, body.data() + at + 40, kHashBytes);
    files.push_back(file);
    at = end + padding(kEntryBytes + file.path.size());
  }
  return files;
}

}  // namespace moorage::repo_cache
