#include "repo_cache/repo_cache.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/mirror.h"
#include "repo_cache/repo_cache_state.h"

namespace moorage::repo_cache {

namespace {

// Upstream is unreachable, so the existing mirror may still be used.
bool excuses_staleness(Code code) {
  return code == Code::unavailable || code == Code::deadline_exceeded;
}

RefreshResult describe(const Mirror& mirror, RefreshResult result) {
  const UpstreamRefs refs = mirror.upstream_refs();
  constexpr std::string_view kHeads = "refs/heads/";
  if (refs.head_ref.starts_with(kHeads))
    result.default_branch = refs.head_ref.substr(kHeads.size());
  if (const auto tip = refs.oids.find(refs.head_ref); tip != refs.oids.end())
    result.tip = tip->second;
  result.checked_wall_ms = mirror.checked_wall_ms();
  result.bytes = base::tree_usage(mirror.git_directory()).bytes;
  return result;
}

// Checks the mirror; returns the reason if it must be rebuilt.
std::optional<Error> find_damage(const Mirror& mirror, const Deadline& deadline) {
  try {
    mirror.recover(deadline);
    return std::nullopt;
  } catch (const Error& error) {
    if (error.code() != Code::corrupted) throw;
    return error;
  }
}

// Git never gets the path of a directory that could not be checked because it was missing.
UpstreamRefs ask_upstream(const Mirror& mirror, const FetchTask& task) {
  if (task.url.missing) {
    throw Error(mirror.exists() ? Code::unavailable : Code::not_found,
                "no such directory: " + base::escape_for_message(task.url.fetch));
  }
  return mirror.ask_upstream(task);
}

UpstreamRefs ask_for_clone(const Mirror& mirror, const FetchTask& task) {
  UpstreamRefs upstream = ask_upstream(mirror, task);
  if (!upstream.oids.empty()) return upstream;
  throw Error(Code::not_found,
              "repository " + task.url.display + " is empty: it has no branch to start from",
              "push a first commit, then try again");
}

RefreshResult rebuild(const Mirror& mirror, const FetchTask& task, const Error& damage) {
  base::log(base::LogLevel::error, "repo.broken",
            {{"mirror", mirror.git_directory()}, {"reason", damage.message()}});
  try {
    mirror.rebuild(task, ask_for_clone(mirror, task));
  } catch (Error& error) {
    mirror.mark_suspect();
    throw error.add_context("the cached copy is damaged and fetching a new one failed");
  }
  mirror.record_checked();
  return describe(mirror, {.fetched = true, .rebuilt = true});
}

RefreshResult clone(const Mirror& mirror, const FetchTask& task) {
  mirror.clone(task, ask_for_clone(mirror, task));
  mirror.record_checked();
  return describe(mirror, {.cloned = true, .fetched = true});
}

// A host hides a private repository by the same answer, so the mirror is not served instead.
Error gone(const Error& error) {
  return {Code::not_found,
          "upstream no longer has this repository, or hides it: " + error.message(),
          "it may have moved, or you lost access; its workspaces and forks of them remain usable, "
          "and create --ref with the full id of a fetched commit"};
}

UpstreamRefs ask_known(const Mirror& mirror, const FetchTask& task) {
  try {
    return ask_upstream(mirror, task);
  } catch (const Error& error) {
    if (error.code() == Code::not_found) throw gone(error);
    throw;
  }
}

RefreshResult compare_and_fetch(const Mirror& mirror, const FetchTask& task) {
  RefreshResult result;
  try {
    const UpstreamRefs upstream = ask_known(mirror, task);
    if (upstream != mirror.upstream_refs()) {
      mirror.fetch(task, upstream);
      result.fetched = true;
    }
    mirror.record_checked();
  } catch (const Error& error) {
    if (!excuses_staleness(error.code())) throw;
    result.stale = true;
    result.stale_reason = error.message();
  }
  return describe(mirror, std::move(result));
}

RefreshResult refresh_now(const RepoCacheOptions& options, const std::string& directory,
                          const RepoUrl& url, const GitAccess& access, const Deadline& deadline,
                          const ProgressFunction& progress) {
  const MirrorLock lock(directory, deadline);
  const FetchTask task{url, access, lock, deadline, progress};
  const Mirror mirror(options, directory);
  if (!mirror.exists()) return clone(mirror, task);
  std::optional<Error> damage = find_damage(mirror, deadline);
  if (damage) return rebuild(mirror, task, *damage);
  try {
    return compare_and_fetch(mirror, task);
  } catch (const Error& error) {
    if (error.code() != Code::corrupted && error.code() != Code::io) throw;
    // Git or libgit2 failed on an object: the mark requires a full check.
    mirror.mark_suspect();
    damage = find_damage(mirror, deadline);
    if (!damage) throw;
  }
  return rebuild(mirror, task, *damage);
}

// A full commit id, or upstream's full name of a ref that is neither branch nor tag; else empty.
std::string name_to_fetch(const std::string& text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  if (text.size() == 40 && text.find_first_not_of(kHex) == std::string::npos) return text;
  const std::string name = text.starts_with("refs/") ? text : "refs/" + text;
  const bool has_kind = std::count(name.begin(), name.end(), '/') >= 2;
  const bool other = !name.starts_with("refs/heads/") && !name.starts_with("refs/tags/");
  const bool good = has_kind && other && name.size() <= 1024 &&
                    name.find('\0') == std::string::npos &&
                    git_reference_is_valid_name(name.c_str()) == 1;
  return good ? name : "";
}

void run_check(SharedCheck& check, const std::function<RefreshResult()>& work) {
  try {
    check.result = work();
  } catch (const Error& error) {
    check.error = error;
  } catch (const std::exception& error) {
    check.error = Error(Code::internal, error.what());
  }
}

}  // namespace

RepoCache::RepoCache(RepoCacheOptions options)
    : options_(std::move(options)), state_(std::make_unique<State>()) {
  initialize_git();
}

RepoCache::~RepoCache() = default;

std::string RepoCache::directory(const std::string& repo) const {
  const bool good =
      !repo.empty() && repo.size() <= 64 && std::all_of(repo.begin(), repo.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
      });
  if (!good)
    throw Error(Code::invalid_argument,
                "not a repository directory: " + base::escape_for_message(repo));
  return options_.root + "/" + repo;
}

bool RepoCache::exists(const std::string& repo) const {
  return base::path_exists(mirror_directory(repo));
}

RefreshResult RepoCache::refresh(const std::string& repo, const RepoUrl& url, Duration patience,
                                 const ProgressFunction& progress, const GitAccess& access) {
  const std::string path = directory(repo);
  const Deadline deadline(patience);
  const auto work = [&] { return refresh_now(options_, path, url, access, deadline, progress); };
  for (;;) {
    const State::Turn turn = state_->await_turn(repo, deadline.end());
    if (turn.ours) {
      run_check(*turn.check, work);
      state_->end(repo, *turn.check);
    }
    // Another caller's run may have timed out although this one has time left.
    const std::optional<Error>& error = turn.check->error;
    const bool too_short = !turn.ours && error && error->code() == Code::deadline_exceeded &&
                           std::chrono::steady_clock::now() < deadline.end();
    if (too_short) continue;
    if (error) throw Error(*error);
    return turn.check->result;
  }
}

int64_t RepoCache::checked_wall_ms(const std::string& repo) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->checked_wall_ms.find(repo);
  return found == state_->checked_wall_ms.end() ? 0 : found->second;
}

void RepoCache::fetch_more(const std::string& repo, const RepoUrl& url, const std::string& text,
                           Duration patience, const ProgressFunction& progress,
                           const GitAccess& access) {
  const std::string wanted = name_to_fetch(text);
  if (wanted.empty()) throw Error(Code::invalid_argument, "not the name of a ref, or a commit id");
  const Deadline deadline(patience);
  const MirrorLock lock(directory(repo), deadline);
  const Mirror mirror(options_, directory(repo));
  if (auto damage = find_damage(mirror, deadline)) throw Error(*damage);
  mirror.fetch_more({url, access, lock, deadline, progress}, wanted);
  state_->forget(repo);
}

bool RepoCache::can_fetch_more(const std::string& text) { return !name_to_fetch(text).empty(); }

void RepoCache::check(const std::string& repo, Duration patience) const {
  const Deadline deadline(patience);
  const Mirror mirror(options_, directory(repo));
  if (!mirror.exists()) throw Error(Code::not_found, "there is no mirror of " + repo);
  try {
    mirror.quick_check();
    mirror.full_check(deadline);
  } catch (const Error& error) {
    if (error.code() == Code::corrupted) mirror.mark_suspect();
    throw;
  }
}

void RepoCache::mark_suspect(const std::string& repo) const {
  Mirror(options_, directory(repo)).mark_suspect();
}

void RepoCache::remove(const std::string& repo, const std::function<bool()>& unwanted) {
  const std::string path = directory(repo);
  if (!base::path_exists(path)) return;
  {
    const MirrorLock lock(path, Deadline(std::chrono::seconds(30)));
    if (!unwanted()) return;
    base::remove_tree(path);
  }
  state_->drop(repo);
}

}  // namespace moorage::repo_cache
