#include "cli/local/bundle.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/os/files.h"
#include "base/os/process.h"

namespace moorage::cli {
namespace {

constexpr std::chrono::minutes kDeadline{20};  // enough to hash a large tree from a cold disk

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of('\n') + 1);
  return text;
}

// The user's settings and filters for git, without the variables that redirect it.
std::map<std::string, std::string> git_environment() {
  std::map<std::string, std::string> environment{{"LANG", "C.UTF-8"},
                                                 {"GIT_TERMINAL_PROMPT", "0"},
                                                 {"GIT_OPTIONAL_LOCKS", "0"},
                                                 {"GIT_NO_LAZY_FETCH", "1"}};
  for (const char* name : {"HOME", "PATH", "USER", "XDG_CONFIG_HOME", "TMPDIR"}) {
    if (const char* value = std::getenv(name)) environment[name] = value;
  }
  return environment;
}

base::ProcessResult run_git(const std::vector<std::string>& words,
                            const std::map<std::string, std::string>& more,
                            const std::string& directory) {
  std::vector<std::string> argv{
      "git",       "-c", "core.hooksPath=/dev/null",    "-c", "core.fsmonitor=false", "-c",
      "gc.auto=0", "-c", "advice.addEmbeddedRepo=false"};
  argv.insert(argv.end(), words.begin(), words.end());
  base::ProcessOptions options;
  options.environment = git_environment();
  for (const auto& [name, value] : more) options.environment[name] = value;
  options.directory = directory;
  options.deadline = kDeadline;
  return base::run_process(argv, options);
}

std::string make_temporary_directory() {
  const char* base = std::getenv("TMPDIR");
  std::string path = std::string(base != nullptr ? base : "/tmp") + "/moorage-import-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) base::throw_errno("create a temporary directory");
  return path;
}

std::string real_path(const std::string& path) {
  char* resolved = ::realpath(path.c_str(), nullptr);
  if (resolved == nullptr) base::throw_errno("open " + path);
  std::string out(resolved);
  ::free(resolved);
  return out;
}

}  // namespace

LocalBundle::LocalBundle(const std::string& directory) : temporary_(make_temporary_directory()) {
  try {
    const std::string path = real_path(directory);
    // Git would fail to start there without naming the directory.
    base::open_file(path, O_RDONLY | O_DIRECTORY);
    base::check(::access(path.c_str(), X_OK), "enter " + path);
    if (!find_repository(path)) {
      top_ = path;
      make_plain_repository();
    }
  } catch (...) {
    base::remove_tree(temporary_);
    throw;
  }
}

LocalBundle::~LocalBundle() {
  try {
    base::remove_tree(temporary_);
  } catch (const Error&) {
    // Leftovers in the temporary directory are harmless.
  }
}

std::string LocalBundle::git(const std::vector<std::string>& words, const Environment& more) const {
  const base::ProcessResult result = run_git(words, more, top_);
  if (result.ok()) return trimmed(result.output);
  throw Error(Code::io, "git " + words[0] + " failed in " + top_ + ": " + trimmed(result.error),
              "check there: git status");
}

bool LocalBundle::find_repository(const std::string& directory) {
  const base::ProcessResult found =
      run_git({"rev-parse", "--show-toplevel", "--absolute-git-dir"}, {}, directory);
  if (!found.ok()) {
    if (found.error.find("dubious ownership") != std::string::npos) {
      throw Error(
          Code::permission_denied, directory + " belongs to another user, so git refuses it",
          "run moorage as that user, or: git config --global --add safe.directory " + directory);
    }
    if (found.error.find("not a git repository") != std::string::npos) return false;
    throw Error(Code::invalid_argument, directory + ": " + trimmed(found.error));
  }
  const std::string text = trimmed(found.output);
  const size_t line_end = text.find('\n');
  if (line_end == std::string::npos)
    return false;  // inside a bare repository: treat it as a plain directory
  top_ = text.substr(0, line_end);
  git_dir_ = text.substr(line_end + 1);
  const std::string objects = git({"rev-parse", "--git-path", "objects"}, {});
  objects_ = real_path(objects.starts_with('/') ? objects : top_ + "/" + objects);
  if (git({"rev-parse", "--show-object-format"}, {}) != "sha1") {
    throw Error(Code::unsupported,
                top_ + " is a SHA-256 repository; only SHA-1 ones are supported");
  }
  return true;
}

void LocalBundle::make_plain_repository() {
  plain_ = true;
  git_dir_ = temporary_ + "/plain";
  git({"init", "--quiet", "--bare", "--object-format=sha1", git_dir_}, {});
  objects_ = git_dir_ + "/objects";
}

LocalBundle::Environment LocalBundle::in_work_tree() const {
  return {
      {"GIT_DIR", git_dir_},
      {"GIT_WORK_TREE", top_},
      {"GIT_INDEX_FILE", temporary_ + "/index"},
      {"GIT_OBJECT_DIRECTORY", temporary_ + "/repo/objects"},
      {"GIT_ALTERNATE_OBJECT_DIRECTORIES", objects_},
      {"GIT_AUTHOR_NAME", "moorage"},
      {"GIT_AUTHOR_EMAIL", "moorage@localhost"},
      {"GIT_COMMITTER_NAME", "moorage"},
      {"GIT_COMMITTER_EMAIL", "moorage@localhost"},
      // A fixed time, so that the same tree and parent give the same commit, which is sent once.
      {"GIT_AUTHOR_DATE", "1000000000 +0000"},
      {"GIT_COMMITTER_DATE", "1000000000 +0000"}};
}

void LocalBundle::seed_index() {
  // With a copy of the user's index git hashes only changed files. Its time must stay, or files
  // written in the same tick would count as unchanged.
  const std::string ours = temporary_ + "/index";
  const std::string theirs = git({"rev-parse", "--git-path", "index"}, {{"GIT_DIR", git_dir_}});
  const std::string path = theirs.starts_with('/') ? theirs : top_ + "/" + theirs;
  struct stat found {};
  if (plain_ || ::stat(path.c_str(), &found) != 0) {
    if (!head_.empty()) git({"read-tree", head_}, in_work_tree());
    return;
  }
  base::write_file(ours, base::read_file(path, uint64_t{1} << 30));
  const timespec times[2] = {found.st_atim, found.st_mtim};
  base::check(::utimensat(AT_FDCWD, ours.c_str(), times, 0), "set the time of the index");
}

std::string LocalBundle::commit_tree(const std::string& tree, const std::string& parent,
                                     const std::string& message) {
  std::vector<std::string> words{"commit-tree", "-m", message, tree};
  if (!parent.empty()) words.insert(words.begin() + 1, {"-p", parent});
  return git(words, in_work_tree());
}

void LocalBundle::commit() {
  git({"init", "--quiet", "--bare", "--object-format=sha1", temporary_ + "/repo"}, {});
  base::write_file(temporary_ + "/repo/objects/info/alternates", objects_ + "\n");
  const base::ProcessResult head =
      run_git({"rev-parse", "--verify", "--quiet", "HEAD^{commit}"}, {{"GIT_DIR", git_dir_}}, top_);
  if (head.ok()) head_ = trimmed(head.output);
  seed_index();
  const base::ProcessResult added = run_git({"add", "--all"}, in_work_tree(), top_);
  if (!added.ok()) {
    const bool no_commit = added.error.find("does not have a commit") != std::string::npos;
    throw Error(
        Code::io, "git cannot take all files of " + top_ + ": " + trimmed(added.error),
        no_commit
            ? "a nested repository has no commit yet: make one there, or ignore it in .gitignore"
            : "make them readable, or ignore them in .gitignore");
  }
  if (added.error.find("embedded git repository") != std::string::npos) {
    notes_.push_back("nested repositories are left out: " + trimmed(added.error));
  }
  const std::string tree = git({"write-tree"}, in_work_tree());
  const bool shallow = !head_.empty() && git({"rev-parse", "--is-shallow-repository"},
                                             {{"GIT_DIR", git_dir_}}) == "true";
  if (shallow) {
    notes_.emplace_back("the checkout is shallow: importing its tree without its history");
    const std::string head_tree = git({"rev-parse", head_ + "^{tree}"}, in_work_tree());
    head_ = commit_tree(head_tree, "", "Tree of " + head_);
  }
  if (head_.empty()) head_ = commit_tree(tree, "", "Files of " + top_);
  work_ = commit_tree(tree, head_, "Uncommitted and untracked files");
}

LocalBundle::Written LocalBundle::write(const std::vector<std::string>& tips_of_daemon) const {
  constexpr size_t kMostTips = 64;  // each costs a process
  const Environment in_repo{{"GIT_DIR", temporary_ + "/repo"}};
  git({"update-ref", "refs/moorage/head", head_}, in_repo);
  git({"update-ref", "refs/moorage/work", work_}, in_repo);
  const std::string path = temporary_ + "/bundle";
  std::vector<std::string> words{"bundle",           "create", "--quiet", path, "refs/moorage/head",
                                 "refs/moorage/work"};
  for (size_t i = 0; i < std::min(kMostTips, tips_of_daemon.size()); ++i) {
    const std::string& tip = tips_of_daemon[i];
    const bool is_commit =
        tip.size() == 40 && tip.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!is_commit || tip == work_) continue;  // git refuses to make an empty bundle
    if (run_git({"cat-file", "-e", tip + "^{commit}"}, in_repo, top_).ok())
      words.push_back("^" + tip);
  }
  git(words, in_repo);
  return with_both_refs(path);
}

// Git leaves out a ref whose commit the receiver has, but the receiver needs both refs. The header
// is text and ends at the first empty line: add the missing line there.
LocalBundle::Written LocalBundle::with_both_refs(const std::string& path) const {
  constexpr size_t kLongestHeader = 1 << 20;
  const Fd file = base::open_file(path, O_RDONLY);
  const std::string start = base::read_up_to(file.get(), kLongestHeader);
  const size_t end = start.find("\n\n");
  if (end == std::string::npos) throw Error(Code::internal, "git wrote a bundle without a header");
  Written written{path, start.substr(0, end + 1), end + 1};
  const std::string line = head_ + " refs/moorage/head\n";
  if (written.header.find(line) == std::string::npos) written.header += line;
  return written;
}

}  // namespace moorage::cli
