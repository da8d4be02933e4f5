#include "cli/local/bundle.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>

#include "base/error.h"
#include "base/os/files.h"
#include "base/parts.h"
#include "cli/local/unkept.h"
#include "cli/local/unsent.h"
#include "cli/local/work_trees.h"

namespace moorage::cli {
namespace {

std::string make_temporary_directory() {
  const char* base = std::getenv("TMPDIR");
  std::string path = std::string(base != nullptr ? base : "/tmp") + "/moorage-import-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) base::throw_errno("create a temporary directory");
  return path;
}

bool is_object_id(const std::string& text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// A path for a file of git's that has one in each line.
std::string quoted(const std::string& path) {
  std::string text = "\"";
  for (const char letter : path) {
    if (letter == '\n') {
      text += "\\n";
      continue;
    }
    if (letter == '"' || letter == '\\') text += '\\';
    text += letter;
  }
  return text + '"';
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

void LocalBundle::make_repository() {
  run_git({"init", "--quiet", "--bare", "--template=", "--object-format=sha1", repository_},
          {checkout_.top, {}, {}});
  if (!checkout_.is_plain())
    base::write_file(repository_ + "/objects/info/alternates", quoted(checkout_.objects) + "\n");
}

std::string LocalBundle::commit_tree(const std::string& tree, const std::string& parent,
                                     const std::string& message) const {
  std::vector<std::string> words{"commit-tree", "-m", message, tree};
  if (!parent.empty()) words.insert(words.begin() + 1, {"-p", parent});
  return run_git_line(words, in_repository());
}

void LocalBundle::commit() {
  make_repository();
  head_ = head_of(checkout_);
  for (std::string& what : left_behind(checkout_, head_)) notes_.push_back(std::move(what));
  for (std::string& what : unsent(checkout_)) notes_.push_back(std::move(what));
  WorkTrees trees(checkout_, repository_, head_);
  stored_ = trees.write_stored();
  files_ = trees.write_raw();
  may_convert_ = trees.may_convert();
  in_tree_ = trees.call();
  for (const std::string& note : trees.notes()) notes_.push_back(note);

  History history{head_, present_refs()};
  const std::string note = complete_history(checkout_, repository_, history);
  if (!note.empty()) notes_.push_back(note);
  if (history.head.empty()) history.head = commit_files();
  commit_work(history);
}

// Those of the checkout's whose commits are there.
std::vector<Ref> LocalBundle::present_refs() {
  std::vector<Ref> refs = refs_of(checkout_);
  std::string asked;
  for (const Ref& ref : refs) asked += ref.oid + "\n";
  if (refs.empty()) return refs;
  const std::string text =
      run_git({"cat-file", "--batch-check=%(objecttype)"}, in_repository(asked));
  const auto types = base::split(text, '\n');
  std::vector<Ref> present;
  std::vector<std::string> broken;
  for (size_t n = 0; n < refs.size(); ++n) {
    if (types.at(n).ends_with(" missing"))
      broken.push_back(refs[n].name);
    else
      present.push_back(std::move(refs[n]));
  }
  if (!broken.empty())
    notes_.push_back("branches and tags without their commit stay here: " + some_of(broken));
  return present;
}

// Stands for HEAD if its history cannot come along, or if there is none yet.
std::string LocalBundle::commit_files() const {
  if (head_.empty()) return commit_tree(stored_, "", "Files of " + checkout_.top);
  const std::string tree = run_git_line({"rev-parse", head_ + "^{tree}"}, in_repository());
  return commit_tree(tree, "", "Tree of " + head_);
}

// The caller's files, as commits on top of a history.
void LocalBundle::commit_work(const History& history) {
  head_ = history.head;
  const std::string head_tree = run_git_line({"rev-parse", head_ + "^{tree}"}, in_repository());
  work_ =
      stored_ == head_tree ? head_ : commit_tree(stored_, head_, "Uncommitted and untracked files");
  raw_ = files_ == stored_ && !may_convert_
             ? work_
             : commit_tree(files_, work_, "The same files, as they are on disk");
  refs_ = {{"refs/moorage/head", head_}, {"refs/moorage/work", work_}, {"refs/moorage/raw", raw_}};
  refs_.insert(refs_.end(), history.refs.begin(), history.refs.end());
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

base::ProcessResult LocalBundle::create(const std::string& path,
                                        const std::vector<std::string>& known_tips) const {
  std::string wanted;
  for (const Ref& ref : refs_) wanted += ref.name + "\n";
  for (const std::string& tip : known_tips) {
    // Git refuses to make an empty bundle: the last commit is always in it.
    wanted += "^" + tip + (tip == raw_ ? "^@\n" : "\n");
  }
  // Deltas in the checkout's packs are reused. To search for others takes minutes in a tree of
  // loose objects, and saves a fifth of the bytes.
  return try_git(
      with_callers_settings(checkout_, {"-c", "pack.window=0", "-c", "pack.compression=1", "bundle",
                                        "create", "--quiet", path, "--stdin"}),
      in_repository(wanted));
}

LocalBundle::Written LocalBundle::write(const std::vector<std::string>& tips_of_daemon) {
  Written written{temporary_ + "/bundle", {}, 0};
  const std::vector<std::string> common = known(tips_of_daemon);
  const std::string promisor = promisor_of(checkout_);
  if (!promisor.empty()) {  // from now on git fetches the objects that a partial clone lacks
    run_git({"config", "core.repositoryFormatVersion", "1"}, in_repository());
    run_git({"config", "extensions.partialClone", promisor}, in_repository());
  }
  base::ProcessResult created = create(written.path, common);
  if (!created.ok() && !promisor.empty()) {
    notes_.push_back("the checkout is a partial clone, and what it lacks cannot be fetched (" +
                     reason_of(created) +
                     "): importing its files without history, branches and "
                     "tags");
    commit_work({commit_files(), {}});
    created = create(written.path, common);
  }
  if (!created.ok())
    throw Error(Code::io, "cannot read " + checkout_.top + ": " + reason_of(created),
                "check there: git fsck");
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
