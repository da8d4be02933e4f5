// What is done with each step that was cut, and with each thing that is nobody's, as one table a
// kind: a line a state of the row (state_db/lifecycle.h), a column for what is really there. The
// reconciler executes it at start and every few seconds; doctor says what it would do. Every place
// has an entry: the compiler checks it. Deciding twice changes nothing, so a kill during the
// recovery only means that it begins again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "state_db/lifecycle.h"
#include "state_db/snapshots.h"

namespace moorage::workspace {

enum class Mend : uint8_t {
  unset,       // no entry: never compiles
  nothing,     // it rests
  wait,        // a verb is at work on it, or who could tell does not answer yet: look again later
  adopt,       // it lives on: take it over
  finish,      // do the rest of what was begun
  undo,        // take away what was begun
  redo,        // its next use makes it again
  keep_aside,  // it may be somebody's work: moved to lost/, never removed
  tell,        // it is lost: said by integrity (integrity.h), never painted over
};

// Drawings and tables are to be read as rows.
// clang-format off
using enum Mend;

enum class RepositorySeen : uint8_t { at_work, mirror, no_mirror };
inline constexpr std::array<std::array<Mend, 3>, 5> kRepositories{{
    //              at_work  mirror   no_mirror
    /* cloning  */ {wait,    finish,  undo},      // ready; broken
    /* ready    */ {wait,    nothing, redo},      // its next use clones it
    /* fetching */ {wait,    finish,  undo},
    /* broken   */ {wait,    nothing, nothing},
    /* evicted  */ {wait,    undo,    nothing}}};

// A base tree has no life cycle: its row comes after it. torn: not synced, and of another boot.
enum class BaseTreeRowState : uint8_t { none, unsynced, synced, torn };
enum class BaseTreeSeen : uint8_t { at_work, whole, damaged, missing };
inline constexpr std::array<std::array<Mend, 4>, 4> kBaseTrees{{
    //              at_work  whole    damaged  missing
    /* none     */ {wait,    undo,    undo,    nothing},
    /* unsynced */ {wait,    finish,  redo,    redo},      // the sync timer finishes it
    /* synced   */ {wait,    nothing, redo,    redo},
    /* torn     */ {wait,    redo,    redo,    redo}}};

// A workspace and its writable layer. born: its create had written all, or commands ran in it. One
// that is `creating` and born is whole: only `ready` was not written yet. Or it comes from a copy of
// state.db that was made in the middle of the create, and its layer has all the work since.
enum class LayerSeen : uint8_t { at_work, born, unborn, missing };
inline constexpr std::array<std::array<Mend, 4>, 8> kWorkspaces{{
    //                 at_work  born     unborn   missing
    /* creating    */ {wait,    finish,  undo,    undo},
    /* ready       */ {wait,    nothing, nothing, tell},     // unborn: mended (birth.h)
    /* archiving   */ {wait,    undo,    undo,    undo},     // ready; its archive goes
    /* archived    */ {wait,    finish,  finish,  nothing},  // the layer goes, if the archive is there
    /* unarchiving */ {wait,    undo,    undo,    undo},     // archived; the same
    /* deleting    */ {wait,    finish,  finish,  finish},
    /* deleted     */ {wait,    nothing, nothing, nothing},  // until the purge
    /* failed      */ {wait,    undo,    undo,    nothing}}};

// alive: init lives since the same boot and start time, the engine says so, and its mounts are the
// recorded ones.
enum class SandboxSeen : uint8_t { at_work, alive, dead };
inline constexpr std::array<std::array<Mend, 3>, 7> kSandboxes{{
    //               at_work  alive    dead
    /* starting  */ {wait,    undo,    undo},     // nothing ran in it yet
    /* running   */ {wait,    adopt,   finish},   // lost, then destroyed
    /* frozen    */ {wait,    adopt,   finish},   // a freeze that was cut does not last
    /* stopping  */ {wait,    finish,  finish},
    /* stopped   */ {wait,    finish,  finish},
    /* lost      */ {wait,    finish,  finish},
    /* destroyed */ {wait,    undo,    nothing}}};

// ended: its journal has an end. silent: the warden does not answer.
enum class ExecSeen : uint8_t { ended, known, unknown, silent, no_journal, sandbox_gone };
inline constexpr std::array<Mend, 6> kRunningExec{
    // ended   known   unknown  silent  no_journal  sandbox_gone
       finish, adopt,  undo,    wait,   undo,       finish};

// A snapshot that was being taken. mounts: which the sandbox has that was adopted.
enum class SnapshotSeen : uint8_t { at_rest, old_mounts, new_mounts };
inline constexpr std::array<std::array<Mend, 3>, 4> kSnapshots{{
    //               at_rest  old_mounts  new_mounts
    /* at_rest   */ {finish,  undo,       undo},
    /* restack   */ {finish,  undo,       finish},
    /* copy      */ {undo,    undo,       undo},
    /* subvolume */ {undo,    undo,       undo}}};

// A note of an upload (upload_note.h), of which no transfer of ours is going on.
enum class UploadSeen : uint8_t { at_work, file, no_file, no_workspace };
inline constexpr std::array<Mend, 4> kUploads{
    // at_work file  no_file  no_workspace
       wait,   undo, undo,    wait};

// What has no row. Only what carries our name and this store's id, or lies in this store, is looked
// at: everything else is not ours to touch.
enum class Stranger : uint8_t {
  layer, workspace_directory, sandbox, sandbox_directory, base_tree, base_tree_leftover };
inline constexpr std::array<Mend, 6> kStrangers{
    keep_aside, keep_aside, undo, undo, undo, undo};
// clang-format on

template <typename Row, typename Seen, typename Table>
constexpr Mend decide(const Table& table, Row row, Seen seen) {
  return table.at(static_cast<size_t>(row)).at(static_cast<size_t>(seen));
}

constexpr Mend decide(state_db::RepositoryState state, RepositorySeen seen) {
  return decide(kRepositories, state, seen);
}
constexpr Mend decide(BaseTreeRowState state, BaseTreeSeen seen) {
  return decide(kBaseTrees, state, seen);
}
constexpr Mend decide(state_db::WorkspaceState state, LayerSeen seen) {
  return decide(kWorkspaces, state, seen);
}
constexpr Mend decide(state_db::SandboxState state, SandboxSeen seen) {
  return decide(kSandboxes, state, seen);
}
constexpr Mend decide(state_db::SnapshotWay way, SnapshotSeen seen) {
  return decide(kSnapshots, way, seen);
}
constexpr Mend decide(ExecSeen seen) { return kRunningExec.at(static_cast<size_t>(seen)); }
constexpr Mend decide(UploadSeen seen) { return kUploads.at(static_cast<size_t>(seen)); }
constexpr Mend decide(Stranger what) { return kStrangers.at(static_cast<size_t>(what)); }

}  // namespace moorage::workspace
