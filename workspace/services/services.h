// Every object of this layer, in the order of construction: each uses only earlier ones and is
// destroyed before them. Read top to bottom, it shows the layer's parts and their dependencies.
// Runs nothing by itself: the daemon calls at_start(), the look() functions and the verbs.
#pragma once

#include <memory>

#include "backends/registry.h"
#include "base/keyed_mutex.h"
#include "repo_cache/base_tree.h"
#include "repo_cache/repo_cache.h"
#include "workspace/access/leases.h"
#include "workspace/archive/bring_back.h"
#include "workspace/archive/put_away.h"
#include "workspace/best_of/best_of.h"
#include "workspace/best_of/driver.h"
#include "workspace/chain/chains.h"
#include "workspace/chain/flattening.h"
#include "workspace/chain/integrity.h"
#include "workspace/chain/sealing.h"
#include "workspace/changes/measurer.h"
#include "workspace/context/context.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/context/metrics.h"
#include "workspace/context/waiters.h"
#include "workspace/exec/pre_stop.h"
#include "workspace/exec/watcher.h"
#include "workspace/recovery/doctor.h"
#include "workspace/recovery/reconcile.h"
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
#include "workspace/verbs/archives.h"
#include "workspace/verbs/compare.h"
#include "workspace/verbs/create.h"
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
#include "workspace/verbs/top.h"
#include "workspace/verbs/update.h"
#include "workspace/verbs/views.h"

namespace moorage::workspace {

struct ServiceOptions {
  backends::BackendOptions backends;
  repo_cache::RepoCacheOptions repos;
  layers::OverlayOptions storage;
  Options workspace;
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
  repo_cache::BaseTrees base_trees;
  std::unique_ptr<layers::Storage> storage;
  base::KeyedMutex locks;
  LiveSandboxes live;
  Metrics metrics;
  Context context;
  ExecWatcher watcher;  // its threads call nobody whose ExecListeners::Handle is gone
  Leases leases;
  Waiters waiters;
  PreStop pre_stop;
  Repositories mirrors;
  RepositoryVerbs repositories;
  IntegrityCheck integrity;
  PutAway put_away;
  BringBack bring_back;
  Replica replica;
  Flattening flattening;
  Chains chains;
  Sealing sealing;
  SandboxStart starts;
  Sandboxes sandboxes;
  SnapshotTaker taker;
  Changes changes;
  Measurer measurer;
  Views views;
  StartStop start_stop;
  OutputRetention output_retention;
  ExecListeners::Handle retention_listens;  // counts output before a disposable workspace goes
  Deletion deletion;
  Files files;
  Update updates;
  LeaseVerbs lease_verbs;
  QuotaWatch quotas;
  Execs execs;
  Archives archives;
  Gc gc;
  ExportSpools spools;
  Budgets budgets;
  Create create;
  Snapshots snapshots;
  Moves moves;
  Comparison comparison;
  BestOfDriver best_of_driver;
  ExecListeners::Handle best_of_listens;
  BestOf best_of;
  SnapshotKeeper snapshot_keeper;
  Reconciler reconciler;
  Doctor doctor;
  StoreUsage usage;
  Top top;
  Exports exports;
  Imports imports;
  DiskGuard guard;
  IdleKeeper idle_keeper;
};

}  // namespace moorage::workspace
