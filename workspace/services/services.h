// Every object of this layer, in the order of construction: each uses only earlier ones and is
// destroyed before them. Read top to bottom, it shows the layer's parts and their dependencies;
// services.cc makes those that take options. Runs nothing by itself: the daemon calls at_start(),
// the look() functions and the verbs.
#pragma once

#include <memory>

#include "backends/registry.h"
#include "base/keyed_mutex.h"
#include "repo_cache/base_tree.h"
#include "repo_cache/repo_cache.h"
#include "workspace/access/leases.h"
#include "workspace/archive/cold_storage.h"
#include "workspace/best_of/best_of.h"
#include "workspace/best_of/driver.h"
#include "workspace/chain/chains.h"
#include "workspace/chain/flattening.h"
#include "workspace/chain/integrity.h"
#include "workspace/chain/sealing.h"
#include "workspace/changes/measurer.h"
#include "workspace/context/context.h"
#include "workspace/context/metrics.h"
#include "workspace/context/waiters.h"
#include "workspace/exec/pre_stop.h"
#include "workspace/exec/watcher.h"
#include "workspace/network/networks.h"
#include "workspace/recovery/doctor.h"
#include "workspace/recovery/reconcile.h"
#include "workspace/remote/remote_copy.h"
#include "workspace/replica/replica.h"
#include "workspace/repositories/repositories.h"
#include "workspace/sandbox/sandboxes.h"
#include "workspace/snapshot/taker.h"
#include "workspace/upkeep/budgets.h"
#include "workspace/upkeep/disk_guard.h"
#include "workspace/upkeep/gc.h"
#include "workspace/upkeep/idle_stop.h"
#include "workspace/upkeep/output_retention.h"
#include "workspace/upkeep/quota_watch.h"
#include "workspace/upkeep/retention.h"
#include "workspace/upkeep/store_usage.h"
#include "workspace/verbs/approvals.h"
#include "workspace/verbs/archives.h"
#include "workspace/verbs/compare.h"
#include "workspace/verbs/create.h"
#include "workspace/verbs/credentials.h"
#include "workspace/verbs/deletion.h"
#include "workspace/verbs/execs.h"
#include "workspace/verbs/export.h"
#include "workspace/verbs/files.h"
#include "workspace/verbs/import.h"
#include "workspace/verbs/lease_verbs.h"
#include "workspace/verbs/moves.h"
#include "workspace/verbs/repositories.h"
#include "workspace/verbs/snapshots.h"
#include "workspace/verbs/start_stop.h"
#include "workspace/verbs/sync.h"
#include "workspace/verbs/top.h"
#include "workspace/verbs/update.h"
#include "workspace/verbs/views.h"

namespace moorage::workspace {

struct ServiceOptions {
  backends::BackendOptions backends;
  repo_cache::RepoCacheOptions repos;
  layers::OverlayOptions storage;
  Options workspace;
  NetworkOptions network;
  OutputRetention::Rules output;
  GcRules gc;
  BudgetLimits budgets;
  Replica::Rules replica;
};

struct Services {
  // Throws invalid_argument if a placement rule names an unknown backend.
  Services(state_db::Store& opened, const ServiceOptions& options);
  Services(const Services&) = delete;
  Services& operator=(const Services&) = delete;

  state_db::Store& store;
  backends::Registry registry;
  repo_cache::RepoCache repos;
  repo_cache::BaseTrees base_trees{repos};
  std::unique_ptr<layers::Storage> storage;
  base::KeyedMutex locks;
  LiveSandboxes live;
  Metrics metrics;
  Context context;
  IncomingPacks incoming{context};
  ExecWatcher watcher{context, incoming};  // calls nobody whose ExecListeners::Handle is gone
  const NetworkOptions network_options;
  Sightings sightings{context, watcher, network_options};
  Networks networks;
  Leases leases{store};
  Waiters waiters;
  PreStop pre_stop{context, watcher};
  Repositories mirrors{context};
  RepositoryVerbs repositories{context, mirrors};
  IntegrityCheck integrity{context};
  ColdStorage cold_storage{context, mirrors, integrity};
  Replica replica;
  Flattening flattening{context, mirrors};
  Chains chains{context, mirrors, flattening, integrity};
  Sealing sealing{context, mirrors, integrity};
  Sandboxes sandboxes{context, incoming, watcher, networks, pre_stop, chains, sealing, integrity};
  RemoteCopy remote{context, incoming};
  SnapshotTaker taker{context, incoming, remote, chains, sandboxes, flattening, integrity};
  Measurer measurer{context};
  Views views{context, leases, watcher, remote, integrity, measurer, replica, sightings};
  StartStop start_stop{context, leases,       watcher,  pre_stop, sandboxes,
                       taker,   cold_storage, measurer, views};
  OutputRetention output_retention;
  // Before `deletion` listens: counts output before a disposable workspace goes.
  ExecListeners::Handle retention_listens{watcher.listen(output_retention)};
  Deletion deletion{context, leases, watcher, pre_stop, waiters, measurer, start_stop, views};
  Files files{context, leases, remote, chains, integrity};
  Update updates{context, leases, networks, views};
  Credentials credentials{context, networks};
  Approvals approvals{context};
  LeaseVerbs lease_verbs{context, leases, start_stop};
  QuotaWatch quotas{context, watcher, start_stop};
  Execs execs{context, leases, taker, start_stop, views, quotas, watcher};
  Archives archives{context, leases, start_stop, views, cold_storage};
  Gc gc;
  ExportSpools spools{context};
  Budgets budgets;
  Create create{context, mirrors, budgets, views};
  Sync sync{context, mirrors, leases, start_stop, views};
  Snapshots snapshots{context, leases, pre_stop, chains, taker, start_stop, views, budgets};
  Moves moves{context, leases, pre_stop, chains, sandboxes, integrity, start_stop, views, execs};
  Comparison comparison{context, remote};
  BestOfDriver best_of_driver{context, waiters, start_stop, execs, snapshots, comparison, deletion};
  ExecListeners::Handle best_of_listens{watcher.listen(best_of_driver)};
  BestOf best_of{context, leases, best_of_driver};
  SnapshotKeeper snapshot_keeper{context, taker};
  Reconciler reconciler{context,    mirrors,  leases,      chains, sealing, sandboxes,
                        start_stop, deletion, lease_verbs, files,  watcher};
  Doctor doctor{context, mirrors, sealing, watcher, reconciler, replica};
  StoreUsage usage{context};
  Top top{context, watcher, networks, sightings};
  Exports exports{context, mirrors, taker, start_stop, integrity, spools};
  Imports imports{context, mirrors, views, integrity, budgets};
  DiskGuard guard{context, watcher, start_stop, gc};
  IdleKeeper idle_keeper{context, leases, waiters, pre_stop, start_stop, watcher};
};

}  // namespace moorage::workspace
