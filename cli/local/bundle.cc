#include "cli/local/bundle.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>

#include "base/error.h"
#include "base/os/files.h"
#include "base/parts.h"
#include "cli/local/work_trees.h"

namespace moorage::cli {
namespace {

constexpr const char* kRemote = "origin";

std::string make_temporary_directory() {
  const char* base = std::getenv("TMPDIR");
  std::string path = std::string(base != nullptr ? base : "/tmp") + "/moorage-import-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) base::throw_errno("create a temporary directory");
  return path;
}

bool is_object_id(const std::string& text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// The line that says why git failed; advice follows it.
std::string reason_of(const base::ProcessResult& result) {
  const std::string text = trimmed(result.error);
  for (const std::string_view line : base::split(text, '\n')) {
    if (line.starts_with("fatal: ")) return std::string(line.substr(line.find(' ') + 1));
  }
  return text.substr(text.rfind('\n') + 1);
}

// Without the empty line after it.
std::string header_of(const std::string& bundle) {
  constexpr size_t kPiece = 1 << 20;
  const Fd file = base::open_file(bundle, O_RDONLY);
  std::string start;
  while (start.find("\n\n") == std::string::npos) {
    const std::string piece = base::read_at(file.get(), kPiece, start.size());
    if (piece.empty()) throw Error(Code::internal, "git wrote a bundle without a header");
    start += piece;
  }
  return start.substr(0, start.find("\n\n"));
}

}  // namespace

LocalBundle::LocalBundle(const std::string& directory) : temporary_(make_temporary_directory()) {
  try {
    checkout_ = find_checkout(directory);
    repository_ = temporary_ + "/repo";
    origin_ = origin_of(checkout_);
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

GitCall LocalBundle::in_repository(const std::string& input) const {
  return {
      checkout_.top,
      {{"GIT_DIR", repository_},
       {"GIT_AUTHOR_NAME", "moorage"},
       {"GIT_AUTHOR_EMAIL", "moorage@localhost"},
       {"GIT_COMMITTER_NAME", "moorage"},
       {"GIT_COMMITTER_EMAIL", "moorage@localhost"},
       // A fixed time, so that the same tree and parent give the same commit, which is sent once.
       {"GIT_AUTHOR_DATE", "1000000000 +0000"},
       {"GIT_COMMITTER_DATE", "1000000000 +0000"}},
      input};
}

// His remotes and credentials, for a fetch into the temporary repository.
std::vector<std::string> LocalBundle::with_callers_settings(std::vector<std::string> words) const {
  if (!checkout_.is_plain())
    words.insert(words.begin(),
                 {"-c", "include.path=" + git_path(checkout_, "config"), "-c", "core.bare=true"});
  return words;
}

void LocalBundle::make_repository() {
  run_git({"init", "--quiet", "--bare", "--template=", "--object-format=sha1", repository_},
          {checkout_.top, {}, {}});
  if (!checkout_.is_plain())
    base::write_file(repository_ + "/objects/info/alternates", checkout_.objects + "\n");
}

std::string LocalBundle::commit_tree(const std::string& tree, const std::string& parent,
                                     const std::string& message) const {
  std::vector<std::string> words{"commit-tree", "-m", message, tree};
  if (!parent.empty()) words.insert(words.begin() + 1, {"-p", parent});
  return run_git_line(words, in_repository());
}

// Fetches what a shallow clone lacks. False: it cannot.
bool LocalBundle::complete_history() {
  if (!is_shallow(checkout_)) return true;
  const std::string mark = repository_ + "/shallow";
  base::write_file(mark, base::read_file(git_path(checkout_, "shallow")));
  std::vector<std::string> words{"fetch",     "--unshallow",
                                 "--no-tags", "--no-write-fetch-head",
                                 "--refmap=", "--recurse-submodules=no",
                                 kRemote};
  const auto refspecs = try_git(
      {"config", "--get-all", std::string("remote.") + kRemote + ".fetch"}, checkout_.call());
  const std::string refs = trimmed(refspecs.output);
  for (const std::string_view line : base::split(refs, '\n')) {
    const std::string source(line.substr(0, line.find(':')));
    if (source.empty()) continue;
    const bool pattern = source.ends_with('*');
    words.push_back(pattern ? source + ":refs/history/" + std::to_string(words.size()) + "/*"
                            : source);
  }
  const auto fetched = try_git(with_callers_settings(words), in_repository());
  if (fetched.ok() && !base::path_exists(mark)) {
    notes_.emplace_back("the checkout is shallow: its history was fetched from origin");
    return true;
  }
  notes_.push_back("the checkout is shallow, and its history cannot be fetched (" +
                   reason_of(fetched) + "): importing its tree without history");
  return false;
}

void LocalBundle::commit() {
  make_repository();
  head_ = head_of(checkout_);
  for (std::string& what : left_behind(checkout_, head_)) notes_.push_back(std::move(what));
  WorkTrees trees(checkout_, repository_, head_);
  const std::string stored = trees.write_stored();
  const std::string raw = trees.write_raw();
  for (const std::string& note : trees.notes()) notes_.push_back(note);

  const bool with_history = complete_history();
  if (!with_history) {
    const std::string tree = run_git_line({"rev-parse", head_ + "^{tree}"}, in_repository());
    head_ = commit_tree(tree, "", "Tree of " + head_);
  }
  if (head_.empty()) head_ = commit_tree(stored, "", "Files of " + checkout_.top);
  const std::string head_tree = run_git_line({"rev-parse", head_ + "^{tree}"}, in_repository());
  work_ =
      stored == head_tree ? head_ : commit_tree(stored, head_, "Uncommitted and untracked files");
  raw_ = raw == stored ? work_ : commit_tree(raw, work_, "The same files, as they are on disk");
  take_refs(with_history);
}

void LocalBundle::take_refs(bool with_history) {
  refs_ = {{"refs/moorage/head", head_}, {"refs/moorage/work", work_}, {"refs/moorage/raw", raw_}};
  if (with_history) {
    for (Ref& ref : refs_of(checkout_)) refs_.push_back(std::move(ref));
  }
  std::string commands;
  for (const Ref& ref : refs_) commands += "update " + ref.name + " " + ref.oid + "\n";
  run_git({"update-ref", "--stdin"}, in_repository(commands));
}

// Those of the tips that are here, too.
std::vector<std::string> LocalBundle::known(const std::vector<std::string>& tips) const {
  std::string asked;
  std::vector<std::string> candidates;
  for (const std::string& tip : tips) {
    if (!is_object_id(tip)) continue;
    candidates.push_back(tip);
    asked += tip + "\n";
  }
  std::vector<std::string> found;
  if (candidates.empty()) return found;
  const std::string text =
      run_git({"cat-file", "--batch-check=%(objecttype)"}, in_repository(asked));
  const auto lines = base::split(text, '\n');
  for (size_t n = 0; n < candidates.size(); ++n) {
    if (lines.at(n) == "commit") found.push_back(candidates[n]);
  }
  return found;
}

LocalBundle::Written LocalBundle::write(const std::vector<std::string>& tips_of_daemon) const {
  Written written{temporary_ + "/bundle", {}, 0};
  std::string wanted;
  for (const Ref& ref : refs_) wanted += ref.name + "\n";
  for (const std::string& tip : known(tips_of_daemon)) {
    // Git refuses to make an empty bundle: the last commit is always in it.
    wanted += "^" + tip + (tip == raw_ ? "^@\n" : "\n");
  }
  const std::string promisor = promisor_of(checkout_);
  if (!promisor.empty()) {  // from now on git fetches the objects that a partial clone lacks
    run_git({"config", "core.repositoryFormatVersion", "1"}, in_repository());
    run_git({"config", "extensions.partialClone", promisor}, in_repository());
  }
  // Deltas in the checkout's packs are reused. To search for others takes minutes in a tree of
  // loose objects, and saves a fifth of the bytes.
  run_git(with_callers_settings({"-c", "pack.window=0", "-c", "pack.compression=1", "bundle",
                                 "create", "--quiet", written.path, "--stdin"}),
          in_repository(wanted));
  // Git leaves out a ref whose commit the receiver has, but the receiver needs all of them. The
  // header is text and ends at the first empty line: write its refs anew.
  const std::string start = header_of(written.path);
  written.body_offset = start.size() + 1;
  for (const std::string_view line : base::split(start, '\n')) {
    if (line.starts_with('#') || line.starts_with('@') || line.starts_with('-'))
      written.header.append(line).append("\n");
  }
  for (const Ref& ref : refs_) written.header += ref.oid + " " + ref.name + "\n";
  return written;
}

}  // namespace moorage::cli
