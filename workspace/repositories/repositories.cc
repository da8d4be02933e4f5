#include "workspace/repositories/repositories.h"

#include <algorithm>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/os/accounts.h"
#include "base/os/files.h"
#include "base/parts.h"
#include "base/size_text.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store.h"
#include "workspace/context/free_space.h"

namespace moorage::workspace {
namespace {

using state_db::RepositoryState;

MOORAGE_CRASH_POINT(before_mirror, "repository.before_mirror");
MOORAGE_CRASH_POINT(after_mirror, "repository.after_mirror");
MOORAGE_CRASH_POINT(evict_after_intent, "evict.after_intent");
MOORAGE_CRASH_POINT(evict_after_files, "evict.after_files");

// A clone begins: the state shows a crash in it.
void settle_wanted(state_db::Store& store, base::RepoId id) {
  store.transaction([&] {
    const auto state = state_db::RepositoryTable(store).get(id).state;
    if (state != RepositoryState::broken && state != RepositoryState::evicted) return;
    store.move(id, state, RepositoryState::cloning, "wanted again");
  });
}

// Moves the row to `ready` from any state that an earlier attempt or a crash left.
void settle_ready(state_db::Store& store, base::RepoId id) {
  const auto state = state_db::RepositoryTable(store).get(id).state;
  if (state == RepositoryState::ready) return;
  if (state == RepositoryState::broken || state == RepositoryState::evicted) {
    store.move(id, state, RepositoryState::cloning, "wanted again");
    store.move(id, RepositoryState::cloning, RepositoryState::ready);
    return;
  }
  store.move(id, state, RepositoryState::ready);
}

// Hides a repository that never existed, such as a mistyped URL, from later lists.
void settle_failed(state_db::Store& store, base::RepoId id, bool mirror_exists,
                   const Error& error) {
  store.transaction([&] {
    const auto row = state_db::RepositoryTable(store).get(id);
    if (row.state != RepositoryState::cloning && row.state != RepositoryState::fetching) return;
    store.move(id, row.state, mirror_exists ? RepositoryState::ready : RepositoryState::broken,
               error.message());
    if (!mirror_exists && row.fetched_wall_ms == 0) {
      store.move(id, RepositoryState::broken, RepositoryState::evicted, "never cloned");
    }
  });
}

std::string scope_of(const std::optional<UpstreamAccess::Covering>& credential) {
  return credential ? private_scope(credential->row.owner_uid) : "";
}

}  // namespace

repo_cache::ProgressFunction Repositories::adapt(const Progress& progress) {
  if (!progress) return {};
  return [&progress](const repo_cache::Progress& step) {
    progress(std::string(step.phase), step.percent, step.text);
  };
}

void remove_evicted(Context& context, base::RepoId id) {
  context.repos.remove(repo_directory(id), [&] {
    return state_db::RepositoryTable(context.store).get(id).state == RepositoryState::evicted;
  });
}

std::shared_ptr<void> Repositories::work_on(base::RepoId id) {
  const std::lock_guard lock(mutex_);
  work_[id] += 1;
  return {nullptr, [this, id](void*) {
            const std::lock_guard again(mutex_);
            if (--work_[id] == 0) work_.erase(id);
          }};
}

bool Repositories::at_work(base::RepoId id) {
  const std::lock_guard lock(mutex_);
  return work_.contains(id);
}

// The new row and the mark that this process is working on it appear together: otherwise a reader
// could take the row for a leftover of a crash.
Repositories::Begun Repositories::begin(const state_db::NewRepository& wanted) {
  return context_.store.transaction([&] {
    const auto [id, made] = state_db::RepositoryTable(context_.store).find_or_create(wanted);
    return Begun{id, made, work_on(id)};
  });
}

state_db::RepositoryRow Repositories::ensure(const std::string& url, const Asker& asker,
                                             const Progress& progress, const JoinKey& join) {
  const auto parsed = repo_cache::parse_url(url, context_.repos.options().url_policy);
  require_room(context_.options, "cannot fetch");
  const Covering credential = upstream_.covering(parsed, asker);
  const auto [id, made, work] =
      begin({parsed.key, scope_of(credential), parsed.display, parsed.fetch});
  note_use(id);
  if (!made) settle_wanted(context_.store, id);
  before_mirror.pass();
  return refresh(id, parsed, credential, progress, join);
}

std::optional<state_db::RepositoryRow> Repositories::find_commit(const std::string& url,
                                                                 const Asker& asker,
                                                                 const std::string& commit) {
  const auto parsed = repo_cache::parse_url(url, context_.repos.options().url_policy);
  const Covering credential = upstream_.covering(parsed, asker);
  auto row = state_db::RepositoryTable(context_.store).find(parsed.key, scope_of(credential));
  if (!row || row->state != RepositoryState::ready) return std::nullopt;
  if (credential && !upstream_.asked_lately(row->id)) return std::nullopt;
  try {
    context_.repos.resolve(repo_directory(row->id), commit);
    return row;
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
    return std::nullopt;
  }
}

void Repositories::fetch_more(base::RepoId id, const std::string& url, const Asker& asker,
                              const std::string& ref, const Progress& progress) {
  const auto parsed = repo_cache::parse_url(url, context_.repos.options().url_policy);
  const Covering credential = upstream_.covering(parsed, asker);
  const auto work = work_on(id);
  context_.repos.fetch_more(repo_directory(id), parsed, ref, context_.options.fetch_deadline,
                            adapt(progress),
                            credential ? upstream_.open(*credential) : repo_cache::GitAccess{});
}

repo_cache::RefreshResult Repositories::ask_upstream(base::RepoId id,
                                                     const repo_cache::RepoUrl& url,
                                                     const Covering& credential,
                                                     const Progress& progress) {
  const auto ask = [&](const repo_cache::GitAccess& access) {
    return context_.repos.refresh(repo_directory(id), url, context_.options.fetch_deadline,
                                  adapt(progress), access);
  };
  if (!credential) return ask({});
  const repo_cache::GitAccess access = upstream_.open(*credential);
  try {
    auto result = ask(access);
    upstream_.note(id, url.display, result);
    return result;
  } catch (Error& error) {
    if (error.code() != Code::permission_denied && error.code() != Code::not_found) throw;
    upstream_.note_refusal(id);
    const std::string& name = credential->row.name;
    if (error.hint() != repo_cache::kPrivateHint)
      throw error.add_context("with the credential " + name);
    throw Error(error.code(),
                url.host + " did not accept the credential " + name + " for " + url.display,
                "it may have expired, or access was revoked; see: moorage credential test " + name);
  }
}

// A fetch into an existing mirror needs no state of its own, because it is atomic on disk: after a
// crash the next use simply asks upstream again.
state_db::RepositoryRow Repositories::refresh(base::RepoId id, const repo_cache::RepoUrl& url,
                                              const Covering& credential, const Progress& progress,
                                              const JoinKey& join) {
  state_db::RepositoryTable table(context_.store);
  repo_cache::RefreshResult result;
  try {
    result = ask_upstream(id, url, credential, progress);
  } catch (Error& error) {
    settle_failed(context_.store, id, context_.repos.exists(repo_directory(id)), error);
    throw;
  }
  after_mirror.pass();
  note_use(id);
  // Many may have waited for one clone: the first writes the row, the others find it up to date.
  const auto guard = context_.locks.lock(id.str() + ".row", "update");
  const auto before = table.get(id);
  const bool moved = result.cloned || result.fetched || result.rebuilt;
  // True also after a clone whose daemon died before it wrote the name.
  const bool named =
      !result.default_branch.empty() && before.default_branch != result.default_branch;
  if (moved || named || before.state != RepositoryState::ready ||
      before.stale_reason != result.stale_reason) {
    context_.store.transaction([&] {
      settle_ready(context_.store, id);
      state_db::RepositoryFacts facts{.default_branch = result.default_branch,
                                      .checked_wall_ms = result.checked_wall_ms,
                                      .stale_reason = result.stale_reason,
                                      .bytes = result.bytes};
      if (moved) facts.fetched_wall_ms = context_.store.clock().wall_ms();
      table.set_facts(id, facts);
      if (join) join(id.str());
    });
  } else if (join) {
    join(id.str());
  }
  return with_last_check(context_, table.get(id));
}

state_db::RepositoryRow with_last_check(const Context& context, state_db::RepositoryRow row) {
  const int64_t checked_wall_ms = context.repos.checked_wall_ms(repo_directory(row.id));
  row.checked_wall_ms = std::max(row.checked_wall_ms, checked_wall_ms);
  return row;
}

state_db::RepositoryRow Repositories::fetch(base::RepoId id, const Progress& progress,
                                            const JoinKey& join) {
  const auto row = state_db::RepositoryTable(context_.store).get(id);
  if (!has_upstream(row.scope)) {
    throw Error(Code::unsupported, row.id.str() + " was imported from a local checkout",
                "moorage create --from DIR imports its current state");
  }
  require_room(context_.options, "cannot fetch");
  const auto parsed = repo_cache::parse_url(row.fetch_url, context_.repos.options().url_policy);
  Covering credential;
  if (is_private(row.scope)) {
    const auto uid = static_cast<uint32_t>(std::stoul(row.scope.substr(row.scope.find(':') + 1)));
    credential = upstream_.covering(parsed, {.uid = uid});
    if (!credential) {
      throw Error(Code::permission_denied,
                  base::user_name(uid) + " has no credential for " + row.url,
                  "add one: moorage credential add NAME --for " + row.fetch_url);
    }
  }
  const auto work = work_on(id);
  return refresh(id, parsed, credential, progress, join);
}

void Repositories::evict(base::RepoId id, const std::string& reason, const JoinKey& join) {
  const auto row = state_db::RepositoryTable(context_.store).get(id);
  const auto guard = context_.locks.lock(id.str(), "remove");
  if (row.state == RepositoryState::cloning || row.state == RepositoryState::fetching) {
    throw Error(Code::conflict, row.name + " is being fetched", "try again when it has ended");
  }
  context_.store.transaction([&] {
    if (const auto count = state_db::WorkspaceTable(context_.store).count(id); count > 0) {
      throw Error(
          Code::conflict, row.name + " is the base of " + base::count_text(count, "workspace"),
          "remove them first: moorage rm --purge NAME (deleted ones count until they are purged)");
    }
    context_.store.move(id, row.state, RepositoryState::evicted, reason);
    state_db::BaseTreeTable(context_.store).remove_all(id);
    if (join) join(id.str());
  });
  evict_after_intent.pass();
  remove_evicted(context_, id);
  evict_after_files.pass();
}

void Repositories::note_use(base::RepoId id, const std::string& commit) {
  constexpr size_t kMostKept = 10'000;
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  if (used_.size() >= kMostKept)
    std::erase_if(used_, [&](const auto& use) { return now - use.second > std::chrono::hours(1); });
  used_[{id, commit}] = now;
}

bool Repositories::used_within(base::RepoId id, const std::string& commit,
                               std::chrono::milliseconds age) {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find({id, commit});
  return found != used_.end() && std::chrono::steady_clock::now() - found->second < age;
}

ImportedWork Repositories::take_bundle(const state_db::NewRepository& wanted, int bundle_fd,
                                       const JoinKey& join) {
  const auto [id, made, work] = begin(wanted);
  const auto guard = context_.locks.lock(id.str() + ".row", "import");
  note_use(id);
  if (!made) settle_wanted(context_.store, id);
  repo_cache::ImportResult result;
  try {
    result = context_.repos.import_bundle(repo_directory(id), bundle_fd, {});
  } catch (Error& error) {
    settle_failed(context_.store, id, context_.repos.exists(repo_directory(id)), error);
    throw;
  }
  const int64_t now_ms = context_.store.clock().wall_ms();
  ImportedWork imported{id, result.head_commit, result.work_commit, result.raw_commit};
  settle_imported(
      id, {.fetch_url = wanted.fetch_url, .fetched_wall_ms = now_ms, .checked_wall_ms = now_ms},
      join, imported.subject());
  return imported;
}

bool Repositories::has_objects(base::RepoId id, const std::vector<std::string>& objects) {
  const auto row = state_db::RepositoryTable(context_.store).get(id);
  return row.state == RepositoryState::ready &&
         context_.repos.has_objects(repo_directory(id), objects);
}

void Repositories::take_pack(base::RepoId id, const std::vector<std::string>& objects,
                             int pack_fd) {
  const auto guard = context_.locks.lock(id.str() + ".row", "import");
  const auto work = work_on(id);
  note_use(id);
  settle_wanted(context_.store, id);
  const repo_cache::ImportLimits limits{.max_bytes = context_.repos.options().max_fetch_bytes,
                                        .deadline = context_.options.fetch_deadline};
  try {
    context_.repos.import_pack(repo_directory(id), pack_fd, objects, limits);
  } catch (Error& error) {
    settle_failed(context_.store, id, context_.repos.exists(repo_directory(id)), error);
    throw;
  }
  settle_imported(id, {.fetched_wall_ms = context_.store.clock().wall_ms()});
}

void Repositories::settle_imported(base::RepoId id, state_db::RepositoryFacts facts,
                                   const JoinKey& join, const std::string& subject) {
  after_mirror.pass();
  facts.bytes = base::tree_usage(context_.repos.mirror_directory(repo_directory(id))).bytes;
  context_.store.transaction([&] {
    settle_ready(context_.store, id);
    state_db::RepositoryTable(context_.store).set_facts(id, facts);
    if (join) join(subject);
  });
}

// Never trust an archive's claim about its upstream: the refs of a shared mirror come from upstream
// alone, and each user's imports have their own repository.
base::RepoId Repositories::adopt(uint32_t uid, const state_db::RepositoryRow& from,
                                 const std::vector<std::string>& objects, int pack_fd) {
  state_db::RepositoryTable table(context_.store);
  if (from.scope.empty()) {
    const auto here = table.find(from.url, "");
    if (here && has_objects(here->id, objects)) return here->id;
  }
  const auto begun = begin({std::string(kImported) + from.url, local_scope(uid), from.name,
                            has_upstream(from.scope) ? from.fetch_url : ""});
  if (!has_objects(begun.id, objects)) take_pack(begun.id, objects, pack_fd);
  return begun.id;
}

std::string ImportedWork::subject() const {
  return repo.str() + " " + head_commit + " " + work_commit + " " + raw_commit;
}

ImportedWork ImportedWork::parse(const std::string& subject) {
  const auto words = base::split(subject, ' ');
  return {base::RepoId::parse(words.at(0)).value(), std::string(words.at(1)),
          std::string(words.at(2)), std::string(words.at(words.size() > 3 ? 3 : 2))};
}

}  // namespace moorage::workspace
