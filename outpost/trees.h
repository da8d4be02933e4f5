// Base trees and git objects, sent once and shared by all sandboxes here: trees/<key>/files with
// the entries, and beside it `complete`, or `after` with the last entry that arrived. Nobody waits
// for the disk: until settle_tree() is through, `complete` holds only for the boot that it names.
// What an earlier boot left otherwise may lack data that had not reached the disk: it is started
// over. Paths in the packs begin with "tree/".
#pragma once

#include <string>

#include "base/os/fd.h"
#include "outpost/directory.h"
#include "outpost/inside/root.h"
#include "packs/merged/roots.h"

namespace moorage::outpost {

// `tree`: its directory.
bool is_complete(const std::string& tree);
// Its directory of files. not_found: not there, or not complete.
std::string complete_tree(const Directory& directory, const std::string& key);

// JSON for has_tree: {"has":true,"entries":[{"name","size"}]} or {"has":false,"after":"path"}. Only
// the first 1000 files: git objects of a base come in packs.
std::string describe_tree(const Directory& directory, const std::string& key);

// Adds the entries of a pack as it arrives through `source`, a pipe or a file. After a cut, the
// entries so far stay. `more`: adds to a tree that is complete already (git objects); without it,
// such a tree is not changed.
struct ReceiveTree {
  std::string key;
  bool more = false;
  OverlayKind overlay = OverlayKind::root;  // of the sandboxes here
  int copy = -1;  // a file for what arrives, as long as it can be written; then it is empty
};
std::string receive_tree(const Directory& directory, const ReceiveTree& wanted, Fd source);
// For check_tree: compares a tree that was complete with the list that arrives through `source`, a
// pipe.
std::string check_tree(const Directory& directory, const std::string& key, Fd source);
// Syncs a tree that has arrived, so that it outlasts this boot. May take as long as the disk needs.
// If the disk fails, the tree does not count any more.
void settle_tree(const Directory& directory, const std::string& key);

// The owners of a sandbox's files, as seen from outside (root, none) or from its user namespace
// (user).
packs::InsideOwners owners_inside(OverlayKind overlay);

}  // namespace moorage::outpost
