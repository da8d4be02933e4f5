// Names and history: resolves a person's "ref" in a mirror, and lists upstream's refs for a
// workspace.
#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/mirror.h"
#include "repo_cache/repo_cache.h"
#include "repo_cache/repo_cache_state.h"

namespace moorage::repo_cache {

namespace {

constexpr std::string_view kHeads = "refs/heads/";
constexpr std::string_view kTags = "refs/tags/";
constexpr size_t kMostLater = 1000;  // kept answers of one repository
constexpr std::string_view kMirror = "refs/upstream/";
constexpr std::string_view kMirrorHeads = "refs/upstream/heads/";
constexpr std::string_view kMirrorTags = "refs/upstream/tags/";
constexpr std::string_view kLocal = "refs/local/";  // of an imported checkout, named as there

// Opens a mirror unless it is damaged.
GitRepository open_served(const RepoCache& cache, const std::string& repo) {
  const std::string git = cache.mirror_directory(repo);
  if (!base::path_exists(git)) throw Error(Code::not_found, "there is no mirror of " + repo);
  if (base::path_exists(cache.directory(repo) + "/suspect")) {
    throw Error(Code::corrupted, "the cached copy of this repository is damaged",
                "fetch the repository: it will be rebuilt");
  }
  return open_mirror(git);
}

std::optional<git_oid> commit_of_ref(git_repository* repository, const std::string& mirror_ref) {
  if (!git_reference_is_valid_name(mirror_ref.c_str())) return std::nullopt;
  git_reference* raw = nullptr;
  const int answer = git_reference_lookup(&raw, repository, mirror_ref.c_str());
  if (answer == GIT_ENOTFOUND) return std::nullopt;
  check_git(answer, "read " + mirror_ref);
  const GitReference reference(raw);
  git_object* commit = nullptr;
  const int peeled = git_reference_peel(&commit, reference.get(), GIT_OBJECT_COMMIT);
  if (peeled == GIT_EINVALIDSPEC || peeled == GIT_EPEEL) {
    throw Error(Code::invalid_argument, mirror_ref + " is not a commit");
  }
  check_git(peeled, "read " + mirror_ref);
  const GitObject owner(commit);
  return *git_object_id(commit);
}

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

std::optional<git_oid> commit_of_id(git_repository* repository, std::string_view text) {
  if (text.size() < 7 || text.size() > GIT_OID_HEXSZ || !is_hex(text)) return std::nullopt;
  git_oid prefix;
  check_git(git_oid_fromstrn(&prefix, text.data(), text.size()), "read a commit id");
  git_object* raw = nullptr;
  const int answer =
      git_object_lookup_prefix(&raw, repository, &prefix, text.size(), GIT_OBJECT_ANY);
  if (answer == GIT_ENOTFOUND) return std::nullopt;
  if (answer == GIT_EAMBIGUOUS) {
    throw Error(Code::invalid_argument, "commit id " + std::string(text) + " is ambiguous",
                "give more digits");
  }
  check_git(answer, "find a commit");
  const GitObject object(raw);
  git_object* commit = nullptr;
  if (git_object_peel(&commit, object.get(), GIT_OBJECT_COMMIT) < 0) {
    throw Error(Code::invalid_argument, std::string(text) + " is not a commit");
  }
  const GitObject owner(commit);
  return *git_object_id(commit);
}

// "refs/upstream/heads/main" -> "refs/heads/main".
std::string from_mirror_ref(std::string_view ref) {
  return "refs/" + std::string(ref.substr(kMirror.size()));
}

std::optional<ResolvedRef> resolve_upstream_head(git_repository* repository) {
  git_reference* raw = nullptr;
  if (git_reference_lookup(&raw, repository, "refs/upstream/HEAD") < 0) return std::nullopt;
  const GitReference head(raw);
  const char* target = git_reference_symbolic_target(raw);
  if (!target) return std::nullopt;
  const auto oid = commit_of_ref(repository, target);
  if (!oid) return std::nullopt;
  return ResolvedRef{format_oid(*oid), from_mirror_ref(target), true};
}

std::optional<ResolvedRef> resolve_default(git_repository* repository) {
  if (auto head = resolve_upstream_head(repository)) return head;
  const auto imported = commit_of_ref(repository, "refs/moorage/head");
  if (!imported) return std::nullopt;
  return ResolvedRef{format_oid(*imported), {}, false};
}

std::string some_branches(git_repository* repository) {
  git_reference_iterator* raw = nullptr;
  if (git_reference_iterator_glob_new(&raw, repository, "refs/upstream/heads/*") < 0) return {};
  const GitReferenceIterator iterator(raw);
  std::string result;
  const char* name = nullptr;
  for (int i = 0; i < 5 && git_reference_next_name(&name, iterator.get()) == 0; ++i) {
    result += (i ? ", " : "its branches: ") + base::escape_for_message(name + kMirrorHeads.size());
  }
  return result;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// The ref of the pull or merge request that "pull/7", "#7" and the like mean; empty: they mean
// none.
std::string request_ref(const std::string& text) {
  for (const std::string_view kind : {"pull/", "merge-requests/"}) {
    const std::string_view short_text = std::string_view(text).substr(
        text.starts_with("refs/") ? std::string_view("refs/").size() : 0);
    if (short_text.starts_with(kind) && is_number(short_text.substr(kind.size())))
      return std::string(short_text) + "/head";
  }
  if (!is_number(std::string_view(text).substr(text.empty() ? 0 : 1))) return {};
  const std::string number = text.substr(1);
  if (text.front() == '!') return "merge-requests/" + number + "/head";
  if (text.front() != '#') return {};
  return "pull/" + number + "/head, or on GitLab merge-requests/" + number + "/head";
}

// What a person may have meant by a name that upstream does not have.
std::string hint_for(git_repository* repository, const std::string& text) {
  for (const std::string_view remote : {"refs/remotes/origin/", "remotes/origin/", "origin/"}) {
    if (!text.starts_with(remote)) continue;
    const std::string branch = text.substr(remote.size());
    if (commit_of_ref(repository, std::string(kMirrorHeads) + branch))
      return "name it as upstream does: " + base::escape_for_message(branch);
  }
  if (const std::string request = request_ref(text); !request.empty()) return "name it " + request;
  if (text.size() >= 7 && text.size() < GIT_OID_HEXSZ && is_hex(text))
    return "no fetched branch or tag has a commit with these digits: give all 40 of its id";
  return some_branches(repository);
}

struct RefGuess {
  std::string mirror_ref;
  bool is_branch;
};

std::vector<RefGuess> guesses(const std::string& text) {
  if (text.starts_with("refs/")) return {{to_mirror_ref(text), text.starts_with(kHeads)}};
  return {{std::string(kMirrorHeads) + text, true},
          {std::string(kMirrorTags) + text, false},
          {"refs/upstream/" + text, text.starts_with("heads/")}};
}

// One line of packed-refs, plus the peeled line of a tag object.
std::string packed_line(git_repository* repository, const git_reference* reference,
                        const git_oid& oid, const std::string& name) {
  std::string line = format_oid(oid) + " " + name + "\n";
  if (!name.starts_with(kTags)) return line;
  git_oid peeled;
  if (const git_oid* known = git_reference_target_peel(reference)) {
    peeled = *known;
  } else {
    const auto object =
        make_git<GitObject>("read " + name, git_object_lookup, repository, &oid, GIT_OBJECT_ANY);
    if (git_object_type(object.get()) != GIT_OBJECT_TAG) return line;
    const auto target =
        make_git<GitObject>("read a tag", git_object_peel, object.get(), GIT_OBJECT_ANY);
    peeled = *git_object_id(target.get());
  }
  return line + "^" + format_oid(peeled) + "\n";
}

// Whether git allows this name beside those: none is the same, below it, or a directory of it.
bool fits(const std::map<std::string, std::string>& lines, const std::string& name) {
  const auto below = lines.lower_bound(name + "/");
  if (below != lines.end() && below->first.starts_with(name + "/")) return false;
  for (size_t end = name.size(); end != std::string::npos && end > 0;
       end = name.rfind('/', end - 1))
    if (lines.contains(name.substr(0, end))) return false;
  return true;
}

WorkspaceRefs list_workspace_refs(git_repository* repository) {
  std::map<std::string, std::string> lines;
  std::map<std::string, std::string> named;  // neither branch nor tag: "pull/7/head"
  for_each_reference(repository, [&](const git_reference* reference, const git_oid& oid) {
    const std::string_view ref = git_reference_name(reference);
    std::string name;
    if (ref.starts_with(kMirrorHeads)) {
      name = "refs/remotes/origin/" + std::string(ref.substr(kMirrorHeads.size()));
    } else if (ref.starts_with(kMirrorTags)) {
      name = std::string(kTags) + std::string(ref.substr(kMirrorTags.size()));
    } else if (ref.starts_with(kLocal)) {
      name = "refs/" + std::string(ref.substr(kLocal.size()));
    } else if (ref.starts_with(kMirror) && ref != "refs/upstream/HEAD") {
      name = "refs/remotes/origin/" + std::string(ref.substr(kMirror.size()));
      named.emplace(name, packed_line(repository, reference, oid, name));
      return;
    } else {
      return;
    }
    lines.emplace(name, packed_line(repository, reference, oid, name));
  });
  for (const auto& [name, line] : named)
    if (fits(lines, name)) lines.emplace(name, line);
  WorkspaceRefs result;
  result.packed_refs = "# pack-refs with: peeled fully-peeled sorted \n";
  for (const auto& [name, line] : lines) result.packed_refs += line;
  if (const auto head = resolve_default(repository); head && head->is_branch) {
    result.default_branch = head->ref.substr(kHeads.size());
  }
  return result;
}

int count_between(git_repository* repository, const git_oid& with, const git_oid& without,
                  int limit) {
  const auto walk = make_git<GitRevwalk>("walk the history", git_revwalk_new, repository);
  check_git(git_revwalk_push(walk.get(), &with), "walk the history");
  check_git(git_revwalk_hide(walk.get(), &without), "walk the history");
  int count = 0;
  git_oid oid;
  while (count < limit && git_revwalk_next(&oid, walk.get()) == 0) ++count;
  return count;
}

// Whether the newest commits of `tip` that `since` lacks contain this one.
bool is_between(git_repository* repository, const git_oid& wanted, const git_oid& since,
                const git_oid& tip) {
  constexpr int kMost = 50'000;  // half a second
  const auto walk = make_git<GitRevwalk>("walk the history", git_revwalk_new, repository);
  check_git(git_revwalk_push(walk.get(), &tip), "walk the history");
  check_git(git_revwalk_hide(walk.get(), &since), "walk the history");
  git_oid oid;
  for (int n = 0; n < kMost && git_revwalk_next(&oid, walk.get()) == 0; ++n)
    if (git_oid_equal(&oid, &wanted)) return true;
  return false;
}

std::optional<Distance> measure(const GitRepository& repository, const std::string& commit,
                                const std::string& ref, int limit) {
  const std::optional<git_oid> tip = commit_of_ref(repository.get(), to_mirror_ref(ref));
  if (!tip) return std::nullopt;
  const git_oid base = parse_oid(commit);
  if (git_oid_equal(&base, &*tip)) return Distance{};
  return Distance{count_between(repository.get(), *tip, base, limit),
                  count_between(repository.get(), base, *tip, limit)};
}

}  // namespace

std::vector<std::string> RepoCache::tips(const std::string& repo) const {
  if (!exists(repo)) return {};
  open_served(*this, repo);
  return Mirror(options_, directory(repo)).tip_commits();
}

std::vector<std::string> RepoCache::local_branches(const std::string& repo, size_t most) const {
  const GitRepository repository = open_served(*this, repo);
  std::vector<std::string> tips;
  for (const auto& [ref, oid] : list_references(repository.get())) {
    if (tips.size() < most && ref.starts_with("refs/local/heads/")) tips.push_back(oid);
  }
  return tips;
}

std::string RepoCache::all_refs(const std::string& repo) const {
  const GitRepository repository = open_served(*this, repo);
  std::string lines;
  for (const auto& [name, oid] : list_references(repository.get()))
    lines += oid + " " + name + "\n";
  return lines;
}

ResolvedRef RepoCache::resolve(const std::string& repo, std::string_view text) const {
  const GitRepository repository = open_served(*this, repo);
  if (text.empty() || text == "HEAD") {
    if (auto found = resolve_default(repository.get())) return *found;
    const std::string some = some_branches(repository.get());
    throw Error(Code::not_found, "upstream has no default branch",
                some.empty() ? "push a commit there first" : "name one (ref, --ref); " + some);
  }
  if (text.size() > 1024 || text.find('\0') != std::string_view::npos) {
    throw Error(Code::invalid_argument, "not a branch, tag or commit id");
  }
  if (text.size() == GIT_OID_HEXSZ) {
    if (const auto oid = commit_of_id(repository.get(), text)) return {format_oid(*oid), {}, false};
  }
  for (const RefGuess& guess : guesses(std::string(text))) {
    if (const auto oid = commit_of_ref(repository.get(), guess.mirror_ref)) {
      return {format_oid(*oid), from_mirror_ref(guess.mirror_ref), guess.is_branch};
    }
  }
  if (const auto oid = commit_of_id(repository.get(), text)) return {format_oid(*oid), {}, false};
  throw Error(Code::not_found,
              "no branch, tag or commit named '" + base::escape_for_message(text) + "'",
              hint_for(repository.get(), std::string(text)));
}

bool RepoCache::is_child(const std::string& repo, const std::string& commit,
                         const std::string& parent) const {
  const GitRepository repository = open_served(*this, repo);
  return is_only_parent(find_commit(repository.get(), commit).get(), parse_oid(parent));
}

bool RepoCache::is_later(const std::string& repo, const std::string& commit,
                         const std::string& since, const std::string& ref) const {
  const std::tuple key{commit, since, ref};
  uint64_t generation = 0;
  {
    const std::lock_guard lock(state_->mutex);
    const auto& known = state_->later[repo];
    if (const auto last = known.find(key); last != known.end()) return last->second;
    generation = state_->generations[repo];
  }
  const GitRepository repository = open_served(*this, repo);
  const auto tip = commit_of_ref(repository.get(), to_mirror_ref(ref));
  const bool found = tip && is_between(repository.get(), parse_oid(commit), parse_oid(since), *tip);
  const std::lock_guard lock(state_->mutex);
  auto& known = state_->later[repo];
  if (known.size() >= kMostLater) known.clear();
  if (generation == state_->generations[repo]) known[key] = found;
  return found;
}

std::optional<Distance> RepoCache::distance(const std::string& repo, const std::string& commit,
                                            const std::string& ref, int limit) const {
  if (!ref.starts_with("refs/")) throw Error(Code::invalid_argument, "not a full reference name");
  const std::tuple key{commit, ref, limit};
  uint64_t generation = 0;
  {
    const std::lock_guard lock(state_->mutex);
    const auto& known = state_->distances[repo];
    if (const auto last = known.find(key); last != known.end()) return last->second;
    generation = state_->generations[repo];
  }
  const auto found = measure(open_served(*this, repo), commit, ref, limit);
  const std::lock_guard lock(state_->mutex);
  if (generation == state_->generations[repo]) state_->distances[repo][key] = found;
  return found;
}

std::shared_ptr<const WorkspaceRefs> RepoCache::workspace_refs(const std::string& repo) const {
  uint64_t generation = 0;
  {
    const std::lock_guard lock(state_->mutex);
    const auto known = state_->workspace_refs.find(repo);
    if (known != state_->workspace_refs.end()) return known->second;
    generation = state_->generations[repo];
  }
  const GitRepository repository = open_served(*this, repo);
  auto fresh = std::make_shared<const WorkspaceRefs>(list_workspace_refs(repository.get()));
  const std::lock_guard lock(state_->mutex);
  if (generation == state_->generations[repo]) state_->workspace_refs[repo] = fresh;
  return fresh;
}

}  // namespace moorage::repo_cache
