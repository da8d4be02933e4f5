#include "cli/local/history.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/os/files.h"
#include "base/parts.h"
#include "cli/local/unkept.h"

namespace moorage::cli {
namespace {

constexpr const char* kHeadRef = "refs/moorage/head";

class CutHistory {
 public:
  CutHistory(const Checkout& checkout, const std::string& repository)
      : checkout_(checkout), repository_(repository), mark_(repository + "/shallow") {
    base::write_file(mark_, base::read_file(git_path(checkout, "shallow")));
  }

  // Commits whose parents are not here.
  std::vector<std::string> cuts() const {
    const std::string text = trimmed(base::read_file_if_exists(mark_).value_or(""));
    std::vector<std::string> commits;
    for (const std::string_view line : base::split(text, '\n')) {
      if (!line.empty()) commits.emplace_back(line);
    }
    return commits;
  }

  // Why something is missing still; empty: nothing is.
  std::string fetch_all() {
    const std::string usual = remote_of(checkout_);
    std::vector<std::string> remotes = remotes_of(checkout_);
    if (remotes.empty()) return "it has no remote";
    std::stable_partition(remotes.begin(), remotes.end(),
                          [&](const std::string& remote) { return remote == usual; });
    std::string reason;
    for (const std::string& remote : remotes) {
      // Servers may refuse commits by id, and branches alone may not reach every cut.
      if (remote == usual) reason = fetch(remote, refspecs(remote));
      if (reason.empty()) reason = fetch(remote, cuts());
      if (cuts().empty()) return {};
    }
    return reason.empty() ? "it is not in " + some_of(remotes) : reason;
  }

  // Makes those refs start at the cuts that reach one. Returns their names.
  std::vector<std::string> start_at_cuts(History& history) {
    std::string commands;
    if (!history.head.empty()) commands = std::string("update ") + kHeadRef + " " + history.head;
    for (const Ref& ref : history.refs) commands += "\nupdate " + ref.name + " " + ref.oid;
    run_git({"update-ref", "--stdin"}, call(commands + "\n"));
    std::vector<std::string> words{"for-each-ref", "--format=%(refname)"};
    for (const std::string& cut : cuts()) words.push_back("--contains=" + cut);
    words.insert(words.end(), {kHeadRef, "refs/heads", "refs/tags", "refs/remotes"});
    const std::string text = trimmed(run_git(words, call()));
    std::vector<std::string> names;
    for (const std::string_view line : base::split(text, '\n')) {
      if (!line.empty()) names.emplace_back(line);
    }
    if (!names.empty()) write_anew(names);
    forget();
    read_back(history);
    std::replace(names.begin(), names.end(), std::string(kHeadRef), std::string("HEAD"));
    return names;
  }

  // From now on git takes what is here for whole.
  void forget() const { ::unlink(mark_.c_str()); }

 private:
  GitCall call(const std::string& input = {}) const {
    return {checkout_.top, {{"GIT_DIR", repository_}}, input};
  }

  std::vector<std::string> refspecs(const std::string& remote) const {
    const auto set =
        try_git({"config", "--get-all", "remote." + remote + ".fetch"}, checkout_.call());
    const std::string text = trimmed(set.output);
    std::vector<std::string> specs;
    for (const std::string_view line : base::split(text, '\n')) {
      const std::string source(line.substr(0, line.find(':')));
      if (source.empty()) continue;
      const bool pattern = source.ends_with('*') && !source.starts_with('^');
      specs.push_back(pattern ? source + ":refs/history/" + std::to_string(specs.size()) + "/*"
                              : source);
    }
    return specs;
  }

  std::string fetch(const std::string& remote, const std::vector<std::string>& what) const {
    if (cuts().empty()) return {};  // git refuses to unshallow a complete repository
    std::vector<std::string> words{"fetch",
                                   "--unshallow",
                                   "--no-tags",
                                   "--no-write-fetch-head",
                                   "--refmap=",
                                   "--recurse-submodules=no",
                                   "--update-shallow",
                                   remote};
    words.insert(words.end(), what.begin(), what.end());
    const auto fetched = try_git(with_callers_settings(checkout_, words), call());
    return fetched.ok() ? "" : reason_of(fetched);
  }

  void write_anew(const std::vector<std::string>& refs) const {
    std::vector<std::string> words{"fast-export",           "--no-data",
                                   "--reencode=no",         "--signed-tags=strip",
                                   "--fake-missing-tagger", "--tag-of-filtered-object=rewrite"};
    words.insert(words.end(), refs.begin(), refs.end());
    const std::string commits = run_git(words, call());
    run_git({"fast-import", "--quiet", "--force", "--date-format=raw-permissive"}, call(commits));
  }

  void read_back(History& history) const {
    const std::string text = run_git({"for-each-ref", "--format=%(objectname) %(refname)"}, call());
    history.refs.clear();
    for (const std::string_view line : base::split(text, '\n')) {
      const auto words = base::split(line, ' ');
      if (words.size() != 2 || words[1].starts_with("refs/history/")) continue;
      if (words[1] == kHeadRef)
        history.head = words[0];
      else
        history.refs.push_back({std::string(words[1]), std::string(words[0])});
    }
  }

  const Checkout& checkout_;
  const std::string repository_;
  const std::string mark_;
};

}  // namespace

std::string complete_history(const Checkout& checkout, const std::string& repository,
                             History& history) {
  if (!is_shallow(checkout)) return {};
  CutHistory cut(checkout, repository);
  const std::string from = remote_of(checkout);
  const std::string reason = cut.fetch_all();
  if (cut.cuts().empty()) return "the checkout is shallow: its history was fetched from " + from;
  const std::string shallow =
      "the checkout is shallow, and older history cannot be fetched (" + reason + "): ";
  try {
    const std::vector<std::string> names = cut.start_at_cuts(history);
    return shallow + "history starts at the cut" +
           (names.empty() ? "" : ", with other commit ids in " + some_of(names));
  } catch (const Error& error) {
    cut.forget();
    history = {};
    return shallow + "importing its files without history, branches and tags (" + error.message() +
           ")";
  }
}

std::vector<std::string> with_callers_settings(const Checkout& checkout,
                                               std::vector<std::string> words) {
  if (!checkout.is_plain())
    words.insert(words.begin(),
                 {"-c", "include.path=" + git_path(checkout, "config"), "-c", "core.bare=true"});
  return words;
}

std::string reason_of(const base::ProcessResult& result) {
  const std::string text = trimmed(result.error);
  for (const std::string_view line : base::split(text, '\n')) {
    if (line.starts_with("fatal: ")) return std::string(line.substr(line.find(' ') + 1));
  }
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace moorage::cli
