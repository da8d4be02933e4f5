// What an archive says of its workspace: manifest.json, execs.jsonl and git/refs. All of it may be
// a stranger's word: parsing bounds it and checks its shape; whether a name or a limit is allowed
// is for those who use it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "state_db/execs.h"
#include "state_db/repositories.h"
#include "state_db/snapshots.h"
#include "state_db/workspaces.h"

namespace moorage::workspace {

// The newest that is written and read. Format 1 has one chain of layers, and no snapshots; what has
// none is still written so, and earlier releases take it.
inline constexpr int64_t kArchiveFormat = 2;
inline constexpr uint64_t kMaxManifestBytes = 16 << 20;
inline constexpr size_t kMaxManifestLayers = 10'000;
inline constexpr uint64_t kMaxRefsBytes = 128 << 20;
inline constexpr size_t kMaxExecLineBytes = 8 << 20;

struct ManifestLayer {
  std::string id;               // its old one
  std::optional<size_t> below;  // its place in the list, behind this one; nothing: the base tree
};

struct ManifestSnapshot {
  std::string id;                // its old one
  std::optional<size_t> parent;  // its place in the list, before this one
  size_t layer = 0;              // place of a frozen one
  std::string name;
  std::string external_id;
  state_db::SnapshotCause cause = state_db::SnapshotCause::manual;
  base::ExecId exec{};  // its old one; 0: none
  int64_t created_wall_ms = 0;
};

struct ManifestImage {
  std::string id;      // "sha256:..."; empty: not known, or `host`
  std::string source;  // "registry/name@sha256:..."
};

struct Manifest {
  std::string store;  // id of the store that wrote it
  int64_t made_wall_ms = 0;
  state_db::WorkspaceRow workspace;    // what it is, not where: no ids but its own old one
  state_db::RepositoryRow repository;  // url, fetch_url, scope, name, default_branch
  // The writable one first, each before what it stands on; layers/<place in the list>.
  std::vector<ManifestLayer> layers;
  std::vector<ManifestSnapshot> snapshots;          // oldest first
  std::optional<size_t> stands_on;                  // place of a snapshot
  std::optional<state_db::ForkOrigin> forked_from;  // of a fork
  ManifestImage image;
};

std::string write_manifest(const Manifest& manifest);
// Throws invalid_argument; unsupported for another format.
Manifest parse_manifest(const std::string& text);

std::string write_exec_line(const state_db::ExecRow& exec);  // with its line end
state_db::ExecRow parse_exec_line(std::string_view line);

// Object ids that git/refs names (lines as in packed-refs), each once.
std::vector<std::string> ref_objects(std::string_view packed_refs);

}  // namespace moorage::workspace
