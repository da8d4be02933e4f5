#include "workspace/services/services.h"

#include "workspace/access/placement.h"
#include "workspace/archive/store.h"

namespace moorage::workspace {
namespace {

GcRules gc_rules(GcRules rules, Context& context) {
  rules.archive_elsewhere = ArchiveStore(context).is_elsewhere();
  return rules;
}

Context checked(Context context) {
  check_rules(context.options.placement_rules, context.backends.names());
  return context;
}

}  // namespace

Services::Services(state_db::Store& opened, const ServiceOptions& options)
    : store(opened),
      registry(options.backends),
      repos(options.repos),
      base_trees(repos),
      storage(layers::make_overlay_storage(options.storage)),
      context(checked({.store = store,
                       .repos = repos,
                       .base_trees = base_trees,
                       .backends = registry,
                       .storage = *storage,
                       .live = live,
                       .locks = locks,
                       .options = options.workspace,
                       .metrics = metrics})),
      watcher(context),
      mirrors(context),
      repositories(context, mirrors),
      integrity(context),
      put_away(context, mirrors, integrity),
      bring_back(context, mirrors, integrity),
      replica(context, options.replica),
      workspaces(context, mirrors, watcher, integrity, bring_back, replica),
      execs(context, workspaces, watcher),
      archives(context, workspaces, put_away, bring_back),
      flattening(context, mirrors),
      gc(context, workspaces.leases(), mirrors, integrity, archives, gc_rules(options.gc, context)),
      spools(context),
      budgets(context, gc, spools, options.budgets),
      snapshots(context, workspaces, flattening, integrity, budgets),
      moves(context, workspaces, execs),
      comparison(context, workspaces),
      output_retention(context, options.output),
      best_of_driver(context, workspaces, execs, snapshots, comparison),
      best_of_listens(watcher.listen(best_of_driver)),
      retention_listens(watcher.listen(output_retention)),
      best_of(context, workspaces, snapshots, best_of_driver),
      snapshot_keeper(context, snapshots),
      reconciler(context, mirrors, workspaces, watcher),
      doctor(context, mirrors, workspaces, watcher, reconciler),
      usage(context),
      top(context, watcher),
      exports(context, mirrors, workspaces, snapshots, integrity, spools),
      imports(context, mirrors, workspaces, integrity, budgets),
      quotas(context, watcher,
             [this](base::WorkspaceId id, const std::string& reason) {
               workspaces.stop_because(id, reason);
             }),
      guard(context, watcher,
            {.stop = [this](base::WorkspaceId id,
                            const std::string& reason) { workspaces.stop_because(id, reason); },
             .low = [this] { gc.request(); }}),
      idle_keeper(context, workspaces, watcher) {
  connect();
}

void Services::connect() {
  using Row = state_db::WorkspaceRow;
  auto& hooks = workspaces.hooks();
  hooks.flatten = [this](const Row& row) { flattening.require_shallow(row); };
  hooks.before_exec = [this](const Row& row) { return snapshots.before_exec(row); };
  hooks.after_stop = [this](const Row& row) { snapshots.after_stop(row); };
  hooks.admit = [this](uint32_t uid, base::RepoId repository) { budgets.admit(uid, repository); };
  hooks.require_within = [this](const auto& row) { quotas.require_within(row); };
  doctor.watch(replica);
}

}  // namespace moorage::workspace
