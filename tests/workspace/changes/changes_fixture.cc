#include "workspace/changes/changes_fixture.h"

#include <sys/mount.h>

#include <catch2/catch.hpp>

namespace moorage::workspace {
namespace {

const std::map<std::string, std::string> kEnvironment{{"PATH", "/usr/bin:/bin"},
                                                      {"HOME", "/nonexistent"},
                                                      {"GIT_CONFIG_NOSYSTEM", "1"},
                                                      {"GIT_AUTHOR_NAME", "A"},
                                                      {"GIT_AUTHOR_EMAIL", "a@example.org"},
                                                      {"GIT_COMMITTER_NAME", "A"},
                                                      {"GIT_COMMITTER_EMAIL", "a@example.org"}};

std::string output_of(std::vector<std::string> argv, const std::string& directory) {
  base::ProcessOptions options;
  options.environment = kEnvironment;
  options.directory = directory;
  options.deadline = std::chrono::minutes(10);
  base::ProcessResult result = base::run_process(argv, options);
  std::string line;
  for (const std::string& word : argv) line += word + " ";
  INFO(line << "\n" << result.error);
  REQUIRE(result.ok());
  return result.output;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::set<std::string> pieces(const std::string& output) {
  std::set<std::string> result;
  for (size_t start = 0; start < output.size();) {
    const size_t end = output.find('\0', start);
    result.insert(output.substr(start, end - start));
    start = end + 1;
  }
  return result;
}

}  // namespace

ChangesFixture::ChangesFixture(const std::function<void(const std::string&)>& fill) {
  const std::string origin = directory.path() + "/origin";
  base::make_directories(origin, 0755);
  git(origin, {"init", "-q", "-b", "main"});
  fill(origin);
  git(origin, {"add", "-A", "-f"});
  git(origin, {"commit", "-q", "--allow-empty", "-m", "first"});
  source.repo_dir = "repo_1";
  source.base_commit = first_line(git(origin, {"rev-parse", "HEAD"}));

  base::make_directories(directory.path() + "/repos/repo_1");
  git("/", {"clone", "-q", "--bare", origin, directory.path() + "/repos/repo_1/git"});
  git(directory.path() + "/repos/repo_1/git", {"repack", "-a", "-d", "-q"});  // as fetched
  repo_cache::RepoCacheOptions options;
  options.root = directory.path() + "/repos";
  repos = std::make_unique<repo_cache::RepoCache>(options);
  changes = std::make_unique<Changes>(*repos);

  chain_.base_tree = directory.path() + "/base";
  git("/", {"clone", "-q", origin, chain_.base_tree});
  output_of({"chown", "-hR",
             std::to_string(layers::kDiskFirstId + layers::kAgent) + ":" +
                 std::to_string(layers::kDiskFirstId + layers::kAgent),
             chain_.base_tree},
            "/");
  REQUIRE(chmod(directory.path().c_str(), 0755) == 0);
  base::make_directories(tree, 0755);
  freeze();
}

void ChangesFixture::commit_upstream(const std::string& script) {
  const std::string origin = directory.path() + "/origin";
  const std::string bundle = directory.path() + "/news.bundle";
  output_of({"sh", "-euc", script}, origin);
  git(origin, {"add", "-A", "-f"});
  git(origin, {"commit", "-q", "--allow-empty", "-m", "next"});
  source.moved_commit = first_line(git(origin, {"rev-parse", "HEAD"}));
  git(directory.path() + "/repos/repo_1/git", {"fetch", "-q", "origin", "+main:main"});
  git(origin, {"bundle", "create", "-q", bundle, "main"});
  run(tree, {"git", "fetch", "-q", bundle, "main"});
}

ChangesFixture::~ChangesFixture() { umount2(tree.c_str(), MNT_DETACH); }

void ChangesFixture::freeze() {
  umount2(tree.c_str(), 0);
  if (chain_.writable) chain_.frozen.insert(chain_.frozen.begin(), chain_.writable);
  chain_.writable = {chain_.writable.value + 1};
  storage_->make_layer(chain_.writable);
  source.uppers.insert(source.uppers.begin(),
                       storage_->layer_path(chain_.writable) + "/tree/upper");
  layers::ActiveMounts mounts = storage_->mount(chain_, layers::kFirstHostId);
  base::attach_mount(mounts.tree.get(), tree);
}

std::string ChangesFixture::git(const std::string& where, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "git");
  return output_of(arguments, where);
}

std::string ChangesFixture::run(const std::string& where, const std::vector<std::string>& argv) {
  const std::string id = std::to_string(layers::kFirstHostId + layers::kAgent);
  std::vector<std::string> as_agent{"setpriv", "--reuid", id, "--regid", id, "--clear-groups"};
  as_agent.insert(as_agent.end(), argv.begin(), argv.end());
  return output_of(as_agent, where);
}

std::set<std::string> ChangesFixture::status_of_git() {
  const std::string output =
      run(tree, {"git", "status", "--porcelain", "-z", "-uall", "--no-renames"});
  std::set<std::string> lines;
  for (const std::string& line : pieces(output)) lines.insert(line[1] + line.substr(2));
  return lines;
}

std::set<std::string> ChangesFixture::our_status() {
  std::set<std::string> lines;
  ChangeList list = changes->status(source);
  CHECK_FALSE(list.truncated);
  for (const Change& change : list.changes) {
    const char letter = change.kind == ChangeKind::untracked ? '?'
                        : change.kind == ChangeKind::deleted ? 'D'
                        : change.kind == ChangeKind::type    ? 'T'
                                                             : 'M';
    lines.insert(std::string(1, letter) + " " + change.path);
  }
  return lines;
}

std::set<std::string> ChangesFixture::tree_of_workspace() {
  run(tree, {"git", "add", "-A"});
  std::set<std::string> result = pieces(run(tree, {"git", "ls-files", "-s", "-z"}));
  run(tree, {"git", "reset", "-q"});
  return result;
}

std::set<std::string> ChangesFixture::tree_after_patch(const std::string& patch) {
  const std::string clean = directory.path() + "/clean" + std::to_string(++clean_checkouts_);
  git("/", {"clone", "-q", directory.path() + "/origin", clean});
  if (!patch.empty()) {
    base::write_file(directory.path() + "/patch", patch);
    git(clean, {"apply", "--binary", "--whitespace=nowarn", directory.path() + "/patch"});
  }
  git(clean, {"add", "-A"});
  return pieces(git(clean, {"ls-files", "-s", "-z"}));
}

}  // namespace moorage::workspace
