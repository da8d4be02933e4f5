#include "cli/local/unsent.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/os/files.h"
#include "base/parts.h"
#include "cli/local/unkept.h"

namespace moorage::cli {
namespace {

std::vector<std::string> lines_of(const std::vector<std::string>& words, const Checkout& checkout) {
  const std::string text = trimmed(try_git(words, checkout.call()).output);
  std::vector<std::string> lines;
  for (const std::string_view line : base::split(text, '\n'))
    if (!line.empty()) lines.emplace_back(line);
  return lines;
}

std::vector<std::string> records_of(const std::vector<std::string>& words,
                                    const Checkout& checkout) {
  const std::string text = try_git(words, checkout.call()).output;
  const auto found = records(text);
  return {found.begin(), found.end()};
}

struct OtherRefs {
  std::vector<std::string> notes;
  std::vector<std::string> others;
};

OtherRefs other_refs(const Checkout& checkout) {
  // Those that come along, that have a line of their own, and that git makes for itself.
  constexpr std::array<std::string_view, 8> kLeftOut{
      "refs/heads/",  "refs/tags/",      "refs/remotes/",  "refs/stash",
      "refs/bisect/", "refs/rewritten/", "refs/worktree/", "refs/prefetch/"};
  OtherRefs refs;
  for (std::string& ref : lines_of({"for-each-ref", "--format=%(refname)"}, checkout)) {
    const bool left_out =
        std::any_of(kLeftOut.begin(), kLeftOut.end(),
                    [&ref](std::string_view start) { return ref.starts_with(start); });
    if (left_out) continue;
    auto& kind = ref.starts_with("refs/notes/") ? refs.notes : refs.others;
    kind.push_back(std::move(ref));
  }
  return refs;
}

// But for the one whose URL comes along.
std::vector<std::string> other_remotes(const Checkout& checkout) {
  std::vector<std::string> remotes = remotes_of(checkout);
  if (!origin_of(checkout).empty()) std::erase(remotes, remote_of(checkout));
  return remotes;
}

// Of the repository, which all its worktrees have in common.
std::vector<std::string> hooks_of(const Checkout& checkout) {
  const std::string common = run_git_line({"rev-parse", "--git-common-dir"}, checkout.call());
  const std::filesystem::path directory =
      (common.starts_with('/') ? common : checkout.top + "/" + common) + "/hooks";
  std::vector<std::string> hooks;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(directory, missing)) {
    const bool runs =
        ::access(entry.path().c_str(), X_OK) == 0 && entry.path().extension() != ".sample";
    if (runs) hooks.push_back(entry.path().filename());
  }
  std::sort(hooks.begin(), hooks.end());
  return hooks;
}

// Their names without the part between, which can be a URL with credentials.
std::vector<std::string> settings_of(const Checkout& checkout) {
  // What git sets by itself, and what comes along or has a line of its own. Names are in lower
  // case.
  constexpr std::array<std::string_view, 13> kUsual{"core.repositoryformatversion",
                                                    "core.filemode",
                                                    "core.bare",
                                                    "core.logallrefupdates",
                                                    "core.ignorecase",
                                                    "core.symlinks",
                                                    "core.worktree",
                                                    "core.precomposeunicode",
                                                    "core.autocrlf",
                                                    "core.eol",
                                                    "user.name",
                                                    "user.email",
                                                    "lfs.repositoryformatversion"};
  constexpr std::array<std::string_view, 8> kUsualKinds{
      "remote", "branch", "submodule", "extensions", "gc", "maintenance", "index", "pack"};
  std::vector<std::string> settings;
  for (const std::string& name :
       records_of({"config", "--local", "--name-only", "--list", "-z"}, checkout)) {
    const std::string kind = name.substr(0, name.find('.'));
    const bool usual = std::find(kUsual.begin(), kUsual.end(), name) != kUsual.end() ||
                       std::find(kUsualKinds.begin(), kUsualKinds.end(), kind) != kUsualKinds.end();
    const std::string shown = kind + name.substr(std::min(name.rfind('.'), name.size()));
    if (!usual && std::find(settings.begin(), settings.end(), shown) == settings.end())
      settings.push_back(shown);
  }
  return settings;
}

}  // namespace

std::vector<std::string> unsent(const Checkout& checkout) {
  std::vector<std::string> notes;
  if (checkout.is_plain()) return notes;
  const auto note = [&notes](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) notes.push_back(what + some_of(names));
  };
  const size_t stashes = lines_of({"stash", "list", "--format=%H"}, checkout).size();
  if (stashes > 0) notes.push_back("stashes stay here: " + std::to_string(stashes));
  const OtherRefs refs = other_refs(checkout);
  note("git notes stay here: ", refs.notes);
  note("refs that are neither branches nor tags stay here: ", refs.others);
  note("remotes stay here: ", other_remotes(checkout));
  note("hooks stay here: ", hooks_of(checkout));
  note("settings of .git/config stay here: ", settings_of(checkout));
  return notes;
}

}  // namespace moorage::cli
