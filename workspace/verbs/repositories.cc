#include "workspace/verbs/repositories.h"

#include <fcntl.h>

#include <algorithm>

#include "base/error.h"
#include "base/os/files.h"
#include "base/remote_url.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store.h"
#include "workspace/access/keyed_request.h"
#include "workspace/chain/layer_life.h"
#include "workspace/context/free_space.h"
#include "workspace/context/try_step.h"

namespace moorage::workspace {

state_db::RepositoryRow RepositoryVerbs::add(const Caller& caller, const std::string& url,
                                             const Progress& progress) {
  return repositories_.ensure(url, {.uid = caller.uid}, progress,
                              key_joiner(context_.store, caller));
}

state_db::RepositoryRow RepositoryVerbs::fetch(const Caller& caller, base::RepoId id,
                                               const Progress& progress) {
  find_repository(context_.store, caller, id);
  return repositories_.fetch(id, progress, key_joiner(context_.store, caller));
}

std::vector<state_db::RepositoryRow> RepositoryVerbs::list(const Caller& caller) {
  auto rows = state_db::RepositoryTable(context_.store).list();
  std::erase_if(rows, [&](const auto& row) {
    return row.state == state_db::RepositoryState::evicted || !sees(caller, row);
  });
  for (auto& row : rows) row = with_last_check(context_, std::move(row));
  return rows;
}

state_db::RepositoryRow RepositoryVerbs::get(const Caller& caller, base::RepoId id) {
  return with_last_check(context_, find_repository(context_.store, caller, id));
}

void RepositoryVerbs::remove(const Caller& caller, base::RepoId id) {
  find_repository(context_.store, caller, id);
  // Those that an operation held when their workspace was purged.
  try_step("repo.collect_layers", id.str(), [&] { collect_layers(context_); });
  repositories_.evict(id, "removed by " + user_name(caller.uid),
                      key_joiner(context_.store, caller));
}

std::string RepositoryVerbs::tip(base::RepoId id) {
  try {
    return context_.repos.resolve(repo_directory(id), "").commit;
  } catch (const Error&) {
    return {};  // not cloned yet, or imported without a branch
  }
}

std::vector<std::string> RepositoryVerbs::import_tips(const Caller& caller,
                                                      const std::string& label) {
  const auto row =
      state_db::RepositoryTable(context_.store).find("local:" + label, local_scope(caller.uid));
  if (!row || !context_.repos.exists(repo_directory(row->id))) return {};
  return context_.repos.tips(repo_directory(row->id));
}

base::Fd RepositoryVerbs::begin_import(const ImportSource& source) {
  const std::string& label = source.label;
  if (label.empty() || label.size() > 4096 || label.find('\0') != std::string::npos)
    throw Error(Code::invalid_argument, "label must be the path of the checkout");
  if (base::url_without_credentials(source.origin) != source.origin) {
    throw Error(Code::invalid_argument,
                "origin must be the URL of a git server, without user or password");
  }
  require_room(context_.options, "cannot accept an upload");
  const std::string quarantine = context_.options.store + "/quarantine";
  base::make_directories(quarantine);
  return base::open_file(quarantine, O_TMPFILE | O_RDWR, 0600);
}

ImportedWork RepositoryVerbs::finish_import(const Caller& caller, const ImportSource& source,
                                            base::Fd bundle) {
  const std::string& label = source.label;
  const std::string name = label.substr(label.find_last_of('/') + 1);  // npos + 1 is 0
  return repositories_.take_bundle(
      {"local:" + label, local_scope(caller.uid), name.empty() ? "local" : name, source.origin},
      bundle.get(), key_joiner(context_.store, caller));
}

}  // namespace moorage::workspace
