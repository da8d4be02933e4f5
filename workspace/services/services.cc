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
      leases(store),
      waiters([this](base::ExecId id) {
        return state_db::ExecTable(store).get(id).state != state_db::ExecState::running;
      }),
      pre_stop(context, watcher),
      mirrors(context),
      repositories(context, mirrors),
      integrity(context),
      put_away(context, mirrors, integrity),
      bring_back(context, mirrors, integrity),
      replica(context, options.replica),
      flattening(context, mirrors),
      chains(context, mirrors, flattening, integrity),
      sealing(context, mirrors, integrity),
      starts(context, watcher),
      sandboxes(context, watcher, pre_stop, starts, chains, sealing, integrity),
      taker(context, chains, sandboxes, flattening, integrity),
      changes(repos),
      measurer(context, changes),
      views(context, leases, watcher, integrity, changes, measurer, replica),
      start_stop(context, leases, watcher, pre_stop, sandboxes, taker, bring_back, measurer, views),
      output_retention(context, options.output),
      retention_listens(watcher.listen(output_retention)),
      deletion(context, leases, watcher, pre_stop, waiters, measurer, start_stop, views),
      files(context, leases, chains, integrity),
      updates(context, views),
      lease_verbs(context, leases, start_stop, views),
      quotas(context, watcher, start_stop),
      execs(context, leases, taker, start_stop, views, quotas, watcher),
      archives(context, leases, start_stop, views, put_away, bring_back),
      gc(context, leases, mirrors, integrity, archives, gc_rules(options.gc, context)),
      spools(context),
      budgets(context, gc, spools, options.budgets),
      create(context, mirrors, budgets, views),
      snapshots(context, leases, pre_stop, chains, taker, start_stop, views, budgets),
      moves(context, leases, pre_stop, starts, chains, sandboxes, integrity, start_stop, views,
            execs),
      comparison(context),
      best_of_driver(context, waiters, start_stop, execs, snapshots, comparison),
      best_of_listens(watcher.listen(best_of_driver)),
      best_of(context, leases, snapshots, best_of_driver),
      snapshot_keeper(context, taker),
      reconciler(context, mirrors, leases, chains, sealing, sandboxes, start_stop, deletion,
                 lease_verbs, files, watcher),
      doctor(context, mirrors, sealing, watcher, reconciler),
      usage(context),
      top(context, watcher),
      exports(context, mirrors, taker, start_stop, integrity, spools),
      imports(context, mirrors, views, integrity, budgets),
      guard(context, watcher, start_stop, gc),
      idle_keeper(context, leases, waiters, pre_stop, start_stop, watcher) {
  doctor.watch(replica);
}

}  // namespace moorage::workspace
