#include "cli/local/checkout.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/os/files.h"
#include "base/parts.h"
#include "base/remote_url.h"

namespace moorage::cli {
namespace {

std::string real_path(const std::string& path) {
  char* resolved = ::realpath(path.c_str(), nullptr);
  if (resolved == nullptr) base::throw_errno("open " + path);
  std::string out(resolved);
  ::free(resolved);
  return out;
}

// A path may end with a newline of its own.
std::string line_of(const std::string& output) { return output.substr(0, output.rfind('\n')); }

// nullopt text of a setting: empty.
std::string setting(const Checkout& checkout, const std::vector<std::string>& words) {
  std::vector<std::string> argv{"config", "--get"};
  argv.insert(argv.end(), words.begin(), words.end());
  return trimmed(try_git(argv, checkout.call()).output);
}

}  // namespace

Checkout find_checkout(const std::string& directory) {
  Checkout found{real_path(directory), {}, {}};
  // Git would fail to start there without naming the directory.
  base::open_file(found.top, O_RDONLY | O_DIRECTORY);
  base::check(::access(found.top.c_str(), X_OK), "enter " + found.top);
  const base::ProcessResult answer = try_git({"rev-parse", "--show-toplevel"}, {found.top, {}, {}});
  if (!answer.ok()) {
    if (answer.error.find("dubious ownership") != std::string::npos) {
      throw Error(
          Code::permission_denied, directory + " belongs to another user, so git refuses it",
          "run moorage as that user, or: git config --global --add safe.directory " + directory);
    }
    if (answer.error.find("not a git repository") != std::string::npos) {
      if (!base::path_exists(found.top + "/.git")) return found;
      throw Error(Code::invalid_argument,
                  directory + " has a .git that git cannot use: " + trimmed(answer.error),
                  "repair it, make it readable, or move it away");
    }
    if (answer.error.find("must be run in a work tree") != std::string::npos) {
      throw Error(Code::invalid_argument, directory + " is in a git directory, which has no files",
                  "give a directory with a checkout, or the repository's URL");
    }
    throw Error(Code::invalid_argument, directory + ": " + trimmed(answer.error));
  }
  found.top = line_of(answer.output);
  found.git_dir = line_of(run_git({"rev-parse", "--absolute-git-dir"}, {found.top, {}, {}}));
  found.objects = real_path(git_path(found, "objects"));
  if (run_git_line({"rev-parse", "--show-object-format"}, found.call()) != "sha1") {
    throw Error(Code::unsupported,
                found.top + " is a SHA-256 repository; only SHA-1 ones are supported");
  }
  return found;
}

std::string head_of(const Checkout& checkout) {
  if (checkout.is_plain()) return {};
  const auto head = try_git({"rev-parse", "--verify", "--quiet", "HEAD^{commit}"}, checkout.call());
  return head.ok() ? trimmed(head.output) : "";
}

std::string git_path(const Checkout& checkout, const std::string& name) {
  const std::string path = line_of(run_git({"rev-parse", "--git-path", name}, checkout.call()));
  return path.starts_with('/') ? path : checkout.top + "/" + path;
}

bool is_shallow(const Checkout& checkout) {
  return !checkout.is_plain() &&
         run_git_line({"rev-parse", "--is-shallow-repository"}, checkout.call()) == "true";
}

std::vector<std::string> remotes_of(const Checkout& checkout) {
  std::vector<std::string> remotes;
  const std::string text = trimmed(run_git({"remote"}, checkout.call()));
  for (const std::string_view line : base::split(text, '\n')) {
    if (!line.empty()) remotes.emplace_back(line);
  }
  return remotes;
}

std::string promisor_of(const Checkout& checkout) {
  if (checkout.is_plain()) return {};
  const std::string set = setting(checkout, {"extensions.partialClone"});
  if (!set.empty()) return set;
  for (std::string& remote : remotes_of(checkout)) {  // as newer versions of git say it
    if (setting(checkout, {"--type=bool", "remote." + remote + ".promisor"}) == "true")
      return std::move(remote);
  }
  return {};
}

std::string remote_of(const Checkout& checkout) {
  const std::vector<std::string> remotes = remotes_of(checkout);
  const auto has = [&remotes](const std::string& name) {
    return std::find(remotes.begin(), remotes.end(), name) != remotes.end();
  };
  if (has("origin")) return "origin";
  const auto branch = try_git({"symbolic-ref", "--quiet", "--short", "HEAD"}, checkout.call());
  const std::string remote = setting(checkout, {"branch." + trimmed(branch.output) + ".remote"});
  if (branch.ok() && has(remote)) return remote;
  return remotes.empty() ? "" : remotes.front();
}

std::string origin_of(const Checkout& checkout) {
  if (checkout.is_plain()) return {};
  const auto url = try_git({"remote", "get-url", remote_of(checkout)}, checkout.call());
  return url.ok() ? base::url_without_credentials(trimmed(url.output)) : "";
}

std::vector<Ref> refs_of(const Checkout& checkout) {
  std::vector<Ref> refs;
  if (checkout.is_plain()) return refs;
  const std::string text = run_git({"for-each-ref", "--format=%(objectname) %(refname) %(symref)",
                                    "refs/heads", "refs/tags", "refs/remotes"},
                                   checkout.call());
  for (const std::string_view line : base::split(text, '\n')) {
    const auto words = base::split(line, ' ');
    if (words.size() == 3 && words[2].empty())
      refs.push_back({std::string(words[1]), std::string(words[0])});
  }
  return refs;
}

std::vector<std::string> left_behind(const Checkout& checkout, const std::string& head) {
  constexpr std::array<std::pair<const char*, const char*>, 6> kStates{
      {{"MERGE_HEAD", "a merge in progress"},
       {"rebase-merge", "a rebase in progress"},
       {"rebase-apply", "a rebase or git am in progress"},
       {"CHERRY_PICK_HEAD", "a cherry-pick in progress"},
       {"REVERT_HEAD", "a revert in progress"},
       {"BISECT_LOG", "a bisect in progress"}}};
  std::vector<std::string> left;
  if (checkout.is_plain()) {
    if (std::getenv("GIT_DIR") != nullptr)
      left.emplace_back("GIT_DIR is not used: the files come without its history");
    return left;
  }
  for (const auto& [file, what] : kStates) {
    if (base::path_exists(git_path(checkout, file)))
      left.push_back(std::string(what) + " stays here; its files come with their present contents");
  }
  const std::string converts = setting(checkout, {"core.autocrlf"});
  if (converts == "true" || converts == "input") {
    left.push_back("core.autocrlf is " + converts +
                   " here: git apply may change line ends; moorage apply keeps them");
  }
  if (setting(checkout, {"core.eol"}) == "crlf") {
    left.emplace_back(
        "core.eol is crlf here: git apply may change line ends; moorage apply keeps them");
  }
  const auto staged = try_git({"diff-index", "--cached", "--quiet", head}, checkout.call());
  if (!head.empty() && staged.exit_code == 1)
    left.emplace_back("staged changes come as changes that are not staged");
  return left;
}

}  // namespace moorage::cli
