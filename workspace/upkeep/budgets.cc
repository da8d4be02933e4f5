#include "workspace/upkeep/budgets.h"

#include "base/error.h"
#include "base/os/accounts.h"
#include "base/size_text.h"
#include "state_db/store.h"

namespace moorage::workspace {
namespace {

using Disk = state_db::WorkspaceTable::Disk;

Disk disk_of_repository(state_db::Store& store, const state_db::RepositoryRow& row) {
  Disk disk = state_db::WorkspaceTable(store).disk({.repository = row.id});
  if (row.state != state_db::RepositoryState::evicted) disk.bytes += row.bytes;
  for (const auto& tree : state_db::BaseTreeTable(store).list(row.id)) {
    disk.bytes += tree.disk_bytes;
    disk.files += tree.disk_files;
  }
  return disk;
}

Disk disk_of_store(state_db::Store& store) {
  Disk disk;
  for (const auto& row : state_db::RepositoryTable(store).list()) {
    const Disk of_one = disk_of_repository(store, row);
    disk.bytes += of_one.bytes;
    disk.files += of_one.files;
  }
  return disk;
}

}  // namespace

struct Budgets::Budget {
  std::string whose;
  std::string setting;
  uint64_t limit = 0;
  std::function<uint64_t()> used;
  Gc::Scope scope;
  bool is_bytes = true;

  std::string text(uint64_t amount) const {
    return is_bytes ? base::size_text(amount) : base::count_text(amount, "file");
  }
};

void Budgets::admit_under(const Budget& budget) {
  if (budget.limit == 0 || budget.used() < budget.limit) return;
  gc_.run(budget.whose + " has used up its budget", budget.scope,
          [&budget] { return budget.used() < budget.limit; });
  const uint64_t used = budget.used();
  if (used < budget.limit) return;
  throw base::Error(base::Code::resource_exhausted,
                    budget.whose + " uses " + budget.text(used) + "; its budget is " +
                        budget.text(budget.limit) +
                        ": cannot create a workspace, and nothing can be freed safely",
                    "moorage du shows what uses it, moorage gc --explain why it is kept; "
                    "moorage rm --purge NAME frees space at once. The setting " +
                        budget.setting + " is the limit");
}

void Budgets::admit(uint32_t owner_uid, base::RepoId repository) {
  auto& store = context_.store;
  Budget user;
  user.whose = base::user_name(owner_uid);
  user.setting = "user.budget_bytes";
  user.limit = limits_.user_bytes;
  user.used = [&] {
    return state_db::WorkspaceTable(store).disk({.owner_uid = owner_uid}).bytes +
           exports_.bytes_of(owner_uid);
  };
  user.scope.owner_uid = owner_uid;
  admit_under(user);

  Budget repo;
  const auto row = state_db::RepositoryTable(store).get(repository);
  repo.whose = row.name;
  repo.setting = "repo.budget_bytes";
  repo.limit = limits_.repo_bytes;
  repo.used = [&] {
    return disk_of_repository(store, state_db::RepositoryTable(store).get(repository)).bytes;
  };
  repo.scope.repository = repository;
  admit_under(repo);

  Budget all;
  all.whose = "the store";
  all.setting = "store.budget_bytes";
  all.limit = limits_.store_bytes;
  all.used = [&] { return disk_of_store(store).bytes; };
  admit_under(all);
  all.setting = "store.budget_files";
  all.limit = limits_.store_files;
  all.used = [&] { return disk_of_store(store).files; };
  all.is_bytes = false;
  admit_under(all);
}

}  // namespace moorage::workspace
