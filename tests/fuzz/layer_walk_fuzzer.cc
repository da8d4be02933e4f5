// A workspace's changes, listed from hostile layers: the walk must end, must not leave them, and
// its answers must agree with each other.
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "base/os/files.h"
#include "base/os/process.h"
#include "hostile_tree.h"
#include "repo_cache/repo_cache.h"
#include "workspace/changes/changes.h"

namespace moorage {
namespace {

constexpr size_t kMaxLayers = 3;

std::string git(const std::string& directory, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "git");
  base::ProcessOptions options;
  options.environment = {{"PATH", "/usr/bin:/bin"},     {"GIT_CONFIG_NOSYSTEM", "1"},
                         {"HOME", "/nonexistent"},      {"GIT_AUTHOR_NAME", "A"},
                         {"GIT_AUTHOR_EMAIL", "a@x"},   {"GIT_COMMITTER_NAME", "A"},
                         {"GIT_COMMITTER_EMAIL", "a@x"}};
  options.directory = directory;
  options.deadline = std::chrono::minutes(1);
  const base::ProcessResult result = base::run_process(arguments, options);
  fuzz::require(result.ok(), result.error);
  return result.output;
}

// A commit with the names of hostile_tree.cc.
struct Repository {
  std::unique_ptr<repo_cache::RepoCache> cache;
  std::string commit;

  Repository() {
    const std::string origin = fuzz::scratch_directory() + "/origin";
    for (const std::string directory : {"a", "a/b", "a/b/c", "b", "c/a"}) {
      base::make_directories(origin + "/" + directory, 0755);
      base::write_file(origin + "/" + directory + "/f.txt", "text of " + directory + "\n", 0644);
    }
    base::write_file(origin + "/.gitignore", "*.o\n/d\n!b\n", 0644);
    base::write_file(origin + "/a/.gitattributes", "*.txt text eol=crlf\nc ident\n", 0644);
    base::write_file(origin + "/d", "a file\n", 0755);
    base::check(symlink("a/b", (origin + "/link").c_str()), "link");
    git(origin, {"init", "-q", "-b", "main"});
    git(origin, {"add", "-A", "-f"});
    git(origin, {"commit", "-q", "-m", "first"});
    commit = git(origin, {"rev-parse", "HEAD"}).substr(0, 40);
    const std::string root = fuzz::scratch_directory() + "/repos";
    base::make_directories(root + "/repo_1");
    git("/", {"clone", "-q", "--bare", origin, root + "/repo_1/git"});
    repo_cache::RepoCacheOptions options;
    options.root = root;
    cache = std::make_unique<repo_cache::RepoCache>(options);
  }
};

void look(const Repository& repository, const workspace::ChangeSource& source) {
  const workspace::ChangeSetLimits limits{.max_memory_bytes = 4 << 20,
                                          .walk_time = std::chrono::seconds(20)};
  const workspace::Changes changes(*repository.cache, limits);
  const workspace::ChangeList list = changes.status(source);
  for (const auto& change : list.changes) {
    const std::string slashed = "/" + change.path + "/";
    for (const std::string_view never : {"/../", "/./", "///"}) {
      fuzz::require(slashed.find(never) == std::string::npos,
                    "a change has a path of the workspace");
    }
  }
  const workspace::ChangeCount count = changes.count(source);
  fuzz::require(list.truncated || count.truncated || count.files == list.changes.size(),
                "as many are counted as are listed");
  fuzz::refused([&] {
    const std::string patch = changes.patch(source, 1 << 20);
    fuzz::require(patch.find(fuzz::secret().text) == std::string::npos, "the walk stays inside");
  });
  fuzz::refused([&] { changes.stat(source, 1 << 20); });
}

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  static const Repository repository;
  fuzz::Script script(data, size);
  if (script.rest().find(fuzz::secret().text) != std::string_view::npos) return -1;
  std::vector<std::unique_ptr<fuzz::HostileTree>> layers;
  workspace::ChangeSource source{"repo_1", repository.commit, {}};
  while (layers.empty() || (layers.size() < kMaxLayers && !script.over())) {
    const std::string path = fuzz::scratch_directory() + "/upper" + std::to_string(layers.size());
    layers.push_back(std::make_unique<fuzz::HostileTree>(path));
    layers.back()->grow(script);
    source.uppers.push_back(path);
  }
  fuzz::refused([&] { look(repository, source); });
  base::tree_usage(source.uppers.front());
  return 0;
}
