#include "repo_cache/base_manifest.h"

#include <fcntl.h>
#include <git2/oid.h>
#include <sys/stat.h>

#include <sstream>

#include "base/digest.h"
#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"

namespace moorage::repo_cache {

namespace {

constexpr size_t kMaxBytes = 64 << 10;

[[noreturn]] void throw_damaged() {
  throw Error(Code::corrupted, "the manifest of a base tree is damaged");
}

std::string manifest_of(const std::string& commit, const BaseTreeInfo& info) {
  std::ostringstream out;
  out << "moorage-tree 1\ncommit " << commit << "\nfiles " << info.files << "\ndirectories "
      << info.directories << "\nbytes " << info.bytes << "\nsubmodules " << info.submodules
      << "\nlfs_files " << info.lfs_files << "\nother_filters " << info.other_filters
      << "\nindex_bytes " << info.index_bytes << "\nroot " << info.root << "\n";
  if (!info.parent.empty()) {
    out << "parent " << info.parent << "\nown_files " << info.own_files << "\nown_bytes "
        << info.own_bytes << "\n";
  }
  return out.str();
}

// Empty in a manifest of an older release.
void parse_index_facts(std::istream& in, BaseTreeInfo& info) {
  std::string word;
  if (in >> word >> info.index_bytes >> word >> info.root && word == "root") return;
  info.index_bytes = 0;
  info.root.clear();
}

void parse_delta(std::istream& in, const std::string& commit, BaseTreeInfo& info) {
  std::string word;
  if (!(in >> word)) return;
  std::string own;
  in >> info.parent >> own >> info.own_files >> own >> info.own_bytes;
  const bool is_commit = info.parent.size() == GIT_OID_HEXSZ &&
                         info.parent.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!in || word != "parent" || !is_commit || info.parent == commit) throw_damaged();
}

BaseTreeInfo parse_manifest(const std::string& text, const std::string& expected_commit) {
  std::istringstream in(text);
  std::string word;
  int version = 0;
  std::string commit;
  BaseTreeInfo info;
  in >> word >> version >> word >> commit >> word >> info.files >> word >> info.directories >>
      word >> info.bytes >> word >> info.submodules >> word >> info.lfs_files >> word >>
      info.other_filters;
  if (!in || version != 1 || commit != expected_commit) throw_damaged();
  info.own_files = info.files + info.directories;
  info.own_bytes = info.bytes;
  parse_index_facts(in, info);
  parse_delta(in, commit, info);
  return info;
}

}  // namespace

void write_manifest(const std::string& directory, const std::string& commit,
                    const BaseTreeInfo& info) {
  base::write_file(directory + "/manifest", manifest_of(commit, info));
}

BaseTreeInfo read_manifest(const std::string& directory, const std::string& commit) {
  return parse_manifest(base::read_file(directory + "/manifest", kMaxBytes), commit);
}

std::string files_of(const std::string& directory, const BaseTreeInfo& info) {
  return directory + (info.parent.empty() ? "/tree" : "/delta");
}

// Hashes names and kinds, so that a missing one shows without a walk.
std::string root_of(const std::string& tree) {
  std::string text;
  const Fd root = base::open_directory(tree);
  for (const auto& name : base::list_directory(root.get())) {
    struct stat status {};
    base::check(fstatat(root.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW), "inspect " + tree);
    text += name + '\0' + std::to_string(status.st_mode & S_IFMT) + "\n";
  }
  return base::sha256_hex(text).substr(0, 16);
}

uint64_t index_bytes_of(const std::string& tree) {
  struct stat status {};
  base::check(lstat((tree + "/.git/index").c_str(), &status), "inspect the index of " + tree);
  return static_cast<uint64_t>(status.st_size);
}

}  // namespace moorage::repo_cache
