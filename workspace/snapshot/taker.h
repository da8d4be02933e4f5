// Takes snapshots, and makes forks that are based on them. Ways to take one:
//
//   stopped      its layer becomes the snapshot's and a new one follows: costs a few directories
//   by restack   the same while a sandbox runs, if nothing in it holds the mounts
//   as a copy    while a sandbox runs: layers/copy.h; only the last pass freezes all processes
//
// Each writes two commits (state_db/tables/snapshots.h); workspace/chain/layer_life.h settles
// what a crash leaves between them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "state_db/tables/snapshots.h"
#include "workspace/chain/chains.h"
#include "workspace/remote/remote_copy.h"
#include "workspace/sandbox/sandboxes.h"

namespace moorage::workspace {

class SnapshotTaker {
 public:
  SnapshotTaker(Context& context, IncomingPacks& incoming, RemoteCopy& remote, Chains& chains,
                Sandboxes& sandboxes, Flattening& flattening, IntegrityCheck& integrity)
      : context_(context),
        incoming_(incoming),
        remote_(remote),
        chains_(chains),
        sandboxes_(sandboxes),
        flattening_(flattening),
        integrity_(integrity) {}

  // For a ready workspace under its lock; also creates forks of it in the same two commits, whose
  // ids it appends to `made`. `notice`: how old its files are, if another machine has newer ones.
  state_db::SnapshotRow take(const state_db::WorkspaceRow& present, state_db::NewSnapshot wanted,
                             std::vector<state_db::NewWorkspace> forks = {},
                             std::vector<base::WorkspaceId>* made = nullptr,
                             std::string* notice = nullptr);
  // Forks from an existing snapshot.
  std::vector<base::WorkspaceId> fork_from(const state_db::SnapshotRow& snapshot,
                                           std::vector<state_db::NewWorkspace> forks);

  // For the policy of a workspace. The first and the last take its lock.
  base::SnapshotId before_exec(const state_db::WorkspaceRow& row);
  state_db::SnapshotRow for_export(const state_db::WorkspaceRow& row);
  void after_stop(const state_db::WorkspaceRow& row);
  void take_interval(base::WorkspaceId id);

 private:
  // One that is being taken, from its intent to its outcome.
  struct Taking {
    state_db::SnapshotRow row;
    std::vector<state_db::WorkspaceTable::Created> forks;
    std::shared_ptr<const LiveSandbox> running;  // after an exchange: with its new mounts
    bool exchanged = false;
    bool synced = false;
    uint64_t pause_us = 0;
  };
  state_db::SnapshotWay beside(const state_db::WorkspaceRow& row) const;
  state_db::SnapshotWay choose_way(const state_db::WorkspaceRow& row, bool continues_elsewhere);
  void make(const state_db::WorkspaceRow& row, Taking& taking);
  void exchange(const state_db::WorkspaceRow& row, Taking& taking);
  void record(const state_db::WorkspaceRow& row, const Taking& taking);
  std::vector<state_db::WorkspaceTable::Created> begin_forks(
      base::SnapshotId origin, std::vector<state_db::NewWorkspace>& forks,
      std::vector<base::KeyedMutex::Guard>& at_work);
  void require_durable(const state_db::SnapshotRow& snapshot);
  void undo(const state_db::SnapshotRow& taking,
            const std::vector<state_db::WorkspaceTable::Created>& forks, const std::string& reason);
  // Returns the pause in microseconds.
  uint64_t make_copy(const state_db::SnapshotRow& taking, const state_db::WorkspaceRow& row,
                     const LiveSandbox& running);
  bool is_empty(base::LayerId layer) const;

  Context& context_;
  IncomingPacks& incoming_;
  RemoteCopy& remote_;
  Chains& chains_;
  Sandboxes& sandboxes_;
  Flattening& flattening_;
  IntegrityCheck& integrity_;
};

}  // namespace moorage::workspace
