// What to do with each interrupted step and each orphan, as one table per kind: a line per state of
// the row (state_db/lifecycle.h), a column per state found in reality. The reconciler applies it at
// start and every few seconds; doctor shows what it would do. The compiler checks that every place
// has an entry. Deciding is repeatable, so a kill during the recovery only restarts it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "state_db/lifecycle.h"
#include "state_db/tables/snapshots.h"

namespace moorage::state_db {

enum class Repair : uint8_t {
  unset,       // no entry: does not compile
  nothing,     // leave it alone
  wait,        // a verb uses it, or the source does not answer yet: check again later
  adopt,       // it still runs: take it over
  finish,      // complete the begun step
  undo,        // revert the begun step
  redo,        // its next use recreates it
  keep_aside,  // it may be somebody's work: move it to lost/, never remove it
  report,      // it is lost: report it (workspace/chain/integrity.h), never hide it
};

// Read drawings and tables as rows.
// clang-format off
using enum Repair;

enum class RepositorySeen : uint8_t { at_work, mirror, no_mirror };
inline constexpr std::array<std::array<Repair, 3>, 5> kRepositories{{
    //              at_work  mirror   no_mirror
    /* cloning  */ {wait,    finish,  undo},      // ready; broken
    /* ready    */ {wait,    nothing, redo},      // its next use clones it
    /* fetching */ {wait,    finish,  undo},
    /* broken   */ {wait,    nothing, nothing},
    /* evicted  */ {wait,    undo,    nothing}}};

// A base tree has no life cycle: its row is written after it. torn: unsynced, from another boot.
enum class BaseTreeRowState : uint8_t { none, unsynced, synced, torn };
enum class BaseTreeSeen : uint8_t { at_work, whole, damaged, missing };
inline constexpr std::array<std::array<Repair, 4>, 4> kBaseTrees{{
    //              at_work  whole    damaged  missing
    /* none     */ {wait,    undo,    undo,    nothing},
    /* unsynced */ {wait,    finish,  redo,    redo},      // the sync timer finishes it
    /* synced   */ {wait,    nothing, redo,    redo},
    /* torn     */ {wait,    redo,    redo,    redo}}};

// A workspace and its writable layer. complete: its create wrote everything, or commands ran in it.
// A complete one that is `creating` is whole and only lacks `ready`; or it comes from a copy of state.db
// made in the middle of the create, and its layer has all the work since.
enum class LayerSeen : uint8_t { at_work, complete, partial, missing };
inline constexpr std::array<std::array<Repair, 4>, 8> kWorkspaces{{
    //                 at_work  complete partial  missing
    /* creating    */ {wait,    finish,  undo,    undo},
    /* ready       */ {wait,    nothing, nothing, report},     // unborn: repaired (workspace/chain/initial_files.h)
    /* archiving   */ {wait,    undo,    undo,    undo},     // ready; remove its archive
    /* archived    */ {wait,    finish,  finish,  nothing},  // drop the layer if archived
    /* unarchiving */ {wait,    undo,    undo,    undo},     // archived; the same
    /* deleting    */ {wait,    finish,  finish,  finish},
    /* deleted     */ {wait,    nothing, nothing, nothing},  // until the purge
    /* failed      */ {wait,    undo,    undo,    nothing}}};

// alive: init lives since the same boot and start time, the engine confirms it, and its mounts are
// the recorded ones.
enum class SandboxSeen : uint8_t { at_work, alive, dead };
inline constexpr std::array<std::array<Repair, 3>, 7> kSandboxes{{
    //               at_work  alive    dead
    /* starting  */ {wait,    undo,    undo},     // no command ran
    /* running   */ {wait,    adopt,   finish},   // lost, then destroyed
    /* frozen    */ {wait,    adopt,   finish},   // thaw an interrupted freeze
    /* stopping  */ {wait,    finish,  finish},
    /* stopped   */ {wait,    finish,  finish},
    /* lost      */ {wait,    finish,  finish},
    /* destroyed */ {wait,    undo,    nothing}}};

// ended: its journal has an end. silent: the warden does not answer.
enum class ExecSeen : uint8_t { ended, known, unknown, silent, no_journal, sandbox_gone };
inline constexpr std::array<Repair, 6> kRunningExec{
    // ended   known   unknown  silent  no_journal  sandbox_gone
       finish, adopt,  undo,    wait,   undo,       finish};

// An interrupted snapshot. mounts: those of the adopted sandbox.
enum class SnapshotSeen : uint8_t { at_rest, old_mounts, new_mounts };
inline constexpr std::array<std::array<Repair, 3>, 4> kSnapshots{{
    //               at_rest  old_mounts  new_mounts
    /* at_rest   */ {finish,  undo,       undo},
    /* restack   */ {finish,  undo,       finish},
    /* copy      */ {undo,    undo,       undo},
    /* subvolume */ {undo,    undo,       undo}}};

// A note of an upload (layers/upload_note.h) without a running transfer of this process.
enum class UploadSeen : uint8_t { at_work, file, no_file, no_workspace };
inline constexpr std::array<Repair, 4> kUploads{
    // at_work file  no_file  no_workspace
       wait,   undo, undo,    wait};

// Things without a row. Only those with our name and this store's id, or inside this store, count:
// everything else belongs to others.
enum class Orphan : uint8_t {
  layer, workspace_directory, sandbox, sandbox_directory, base_tree, base_tree_leftover };
inline constexpr std::array<Repair, 6> kStrangers{
    keep_aside, keep_aside, undo, undo, undo, undo};
// clang-format on

template <typename Row, typename Seen, typename Table>
constexpr Repair decide(const Table& table, Row row, Seen seen) {
  return table.at(static_cast<size_t>(row)).at(static_cast<size_t>(seen));
}

constexpr Repair decide(state_db::RepositoryState state, RepositorySeen seen) {
  return decide(kRepositories, state, seen);
}
constexpr Repair decide(BaseTreeRowState state, BaseTreeSeen seen) {
  return decide(kBaseTrees, state, seen);
}
constexpr Repair decide(state_db::WorkspaceState state, LayerSeen seen) {
  return decide(kWorkspaces, state, seen);
}
constexpr Repair decide(state_db::SandboxState state, SandboxSeen seen) {
  return decide(kSandboxes, state, seen);
}
constexpr Repair decide(state_db::SnapshotWay way, SnapshotSeen seen) {
  return decide(kSnapshots, way, seen);
}
constexpr Repair decide(ExecSeen seen) { return kRunningExec.at(static_cast<size_t>(seen)); }
constexpr Repair decide(UploadSeen seen) { return kUploads.at(static_cast<size_t>(seen)); }
constexpr Repair decide(Orphan what) { return kStrangers.at(static_cast<size_t>(what)); }

}  // namespace moorage::state_db
