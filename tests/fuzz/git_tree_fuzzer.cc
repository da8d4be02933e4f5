// A commit from a hostile upstream: only safe names may come out of its trees, and the index made
// of them must agree.
#include <sys/stat.h>

#include <vector>

#include "base/os/files.h"
#include "fuzz.h"
#include "repo_cache/formats/index_file.h"
#include "repo_cache/memory_tree.h"

namespace moorage {
namespace {

constexpr size_t kMaxTrees = 8;
constexpr const char* kModes[] = {"100644", "100755", "120000", "160000",
                                  "40000",  "100664", "0",      "777777777777"};
constexpr std::string_view kNames[] = {"a",    "b",     "a.b",   "..",          ".",
                                       ".git", ".GIT ", "git~1", ".gitmodules", "a/b"};

const repo_cache::MemoryRepository& repository() {
  static const std::string directory = [] {
    repo_cache::initialize_git();
    const std::string path = fuzz::scratch_directory() + "/git";
    git_repository* made = nullptr;
    repo_cache::check_git(git_repository_init(&made, path.c_str(), 1), "make " + path);
    git_repository_free(made);
    return path;
  }();
  static const repo_cache::MemoryRepository opened(directory);
  return opened;
}

git_oid write(std::string_view bytes, git_object_t type) {
  git_oid oid;
  repo_cache::check_git(git_odb_write(&oid, repository().odb(), bytes.data(), bytes.size(), type),
                        "write");
  return oid;
}

// One tree, either as raw bytes or as entries that refer to earlier trees.
git_oid write_tree(fuzz::Script& script, const std::vector<git_oid>& trees) {
  const size_t entries = script.below(8);
  if (entries == 0) return write(script.piece(), GIT_OBJECT_TREE);
  std::string bytes;
  for (size_t i = 0; i < entries; ++i) {
    const size_t mode = script.below(std::size(kModes));
    const uint8_t name = script.byte();
    bytes += std::string(kModes[mode]) + " ";
    bytes += name < std::size(kNames) ? kNames[name] : script.take(name % 16);
    bytes += '\0';
    const git_oid& oid = trees[script.below(trees.size())];
    bytes.append(reinterpret_cast<const char*>(oid.id), sizeof oid.id);
  }
  return write(bytes, GIT_OBJECT_TREE);
}

void check(const repo_cache::TreeListing& listing) {
  for (const auto& file : listing.files) {
    const std::string slashed = "/" + file.path + "/";
    for (const std::string_view never : {"//", "/./", "/../", "/.git/"}) {
      fuzz::require(slashed.find(never) == std::string::npos, "a path may be created");
    }
  }
  const std::string index =
      repo_cache::make_index(listing, std::vector<repo_cache::FileStat>(listing.files.size()));
  const auto read = repo_cache::read_index(index);
  fuzz::require(read.size() == listing.files.size(), "the index has every file");
  for (size_t i = 0; i < read.size(); ++i) {
    fuzz::require(read[i].path == listing.files[i].path, "the index has the same paths");
  }
}

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  fuzz::Script script(data, size);
  repository().forget_writes();
  std::vector<git_oid> trees{write("", GIT_OBJECT_TREE)};
  fuzz::refused([&] {
    while (!script.over() && trees.size() < kMaxTrees) trees.push_back(write_tree(script, trees));
    const git_oid commit = write("tree " + repo_cache::format_oid(trees.back()) +
                                     "\nauthor A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\n\n",
                                 GIT_OBJECT_COMMIT);
    check(repo_cache::list_tree(repository().get(), repo_cache::format_oid(commit)));
  });
  return 0;
}
