// What an archive says of its workspace: manifest.json, execs.jsonl and git/refs. All of it may be
// a stranger's word: parsing bounds it and checks its shape; whether a name or a limit is allowed
// is for those who use it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "state_db/execs.h"
#include "state_db/repositories.h"
#include "state_db/workspaces.h"

namespace moorage::workspace {

inline constexpr int64_t kArchiveFormat = 1;
inline constexpr uint64_t kMaxManifestBytes = 1 << 20;
inline constexpr uint64_t kMaxRefsBytes = 128 << 20;
inline constexpr size_t kMaxExecLineBytes = 8 << 20;

struct Manifest {
  std::string store;  // id of the store that wrote it
  int64_t made_wall_ms = 0;
  state_db::WorkspaceRow workspace;    // what it is, not where: no ids but its own old one
  state_db::RepositoryRow repository;  // url, fetch_url, scope, name, default_branch
  std::vector<std::string> layers;     // old ids, newest first; layers/<place in the list>
};

std::string write_manifest(const Manifest& manifest);
// Throws invalid_argument; unsupported for another format.
Manifest parse_manifest(const std::string& text);

std::string write_exec_line(const state_db::ExecRow& exec);  // with its line end
state_db::ExecRow parse_exec_line(std::string_view line);

// Object ids that git/refs names (lines as in packed-refs), each once.
std::vector<std::string> ref_objects(std::string_view packed_refs);

}  // namespace moorage::workspace
