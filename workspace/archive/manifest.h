// The metadata in an archive: manifest.json, execs.jsonl and git/refs. All of it is untrusted:
// parsing limits its size and checks its shape; the callers decide whether a name or a limit is
// allowed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "state_db/tables/execs.h"
#include "state_db/tables/repositories.h"
#include "state_db/tables/snapshots.h"
#include "state_db/tables/workspaces.h"

namespace moorage::workspace {

// The newest format. Format 1 has one chain of layers and no snapshots; a workspace without
// snapshots is still written so, and earlier releases can read it.
inline constexpr int64_t kArchiveFormat = 2;
inline constexpr uint64_t kMaxManifestBytes = 16 << 20;
inline constexpr size_t kMaxManifestLayers = 10'000;
inline constexpr uint64_t kMaxRefsBytes = 128 << 20;
inline constexpr size_t kMaxExecLineBytes = 8 << 20;

struct ManifestLayer {
  std::string id;               // in the exporting store
  std::optional<size_t> below;  // later index in the list; nullopt: the base tree
};

struct ManifestSnapshot {
  std::string id;                // in the exporting store
  std::optional<size_t> parent;  // earlier index in the list
  size_t layer = 0;              // index of a frozen layer
  std::string name;
  std::string external_id;
  state_db::SnapshotCause cause = state_db::SnapshotCause::manual;
  base::ExecId exec{};  // in the exporting store; 0: none
  int64_t created_wall_ms = 0;
  std::string moved_commit = {};  // as in WorkspaceRow
};

struct ManifestImage {
  std::string id;      // "sha256:..."; empty: unknown, or `host`
  std::string source;  // "registry/name@sha256:..."
};

struct Manifest {
  std::string store;  // id of the store that wrote it
  int64_t made_wall_ms = 0;
  state_db::WorkspaceRow workspace;    // its properties; the only id is its old one
  state_db::RepositoryRow repository;  // url, fetch_url, scope, name, default_branch
  // The writable layer first, each before its parent; files in layers/<index in the list>.
  std::vector<ManifestLayer> layers;
  std::vector<ManifestSnapshot> snapshots;          // oldest first
  std::optional<size_t> stands_on;                  // index of a snapshot
  std::optional<state_db::ForkOrigin> forked_from;  // of a fork
  ManifestImage image;
};

std::string write_manifest(const Manifest& manifest);
// Throws invalid_argument; unsupported for another format.
Manifest parse_manifest(const std::string& text);

std::string write_exec_line(const state_db::ExecRow& exec);  // includes the line end
state_db::ExecRow parse_exec_line(std::string_view line);

// Object ids in git/refs (packed-refs lines), without duplicates.
std::vector<std::string> ref_objects(std::string_view packed_refs);

}  // namespace moorage::workspace
