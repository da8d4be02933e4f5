// The smallest archive of a workspace that an import accepts.
#pragma once

#include <string>

#include "packs/tar_fixture.h"
#include "workspace/archive/file.h"

namespace moorage::workspace {

// A workspace that an import accepts, with one empty layer.
inline ArchiveContents empty_workspace(const std::string& upper) {
  ArchiveContents contents;
  contents.manifest.store = "0123abcd";
  auto& row = contents.manifest.workspace;
  row.id = base::WorkspaceId{1};
  row.name = "work";
  row.branch = "moorage/work";
  row.base_commit = std::string(40, 'a');
  row.policy.limits = {.memory_bytes = 1 << 30, .cpus = 1, .pids = 100};
  contents.manifest.layers = {{.id = "ly_1", .below = {}}};
  contents.pack.fd = packs::unnamed_file();
  contents.execs.fd = packs::unnamed_file();
  for (const std::string name : kLayerParts) {
    packs::LayerPart part;
    part.prefix = part_prefix(0, name);
    part.uppers = {upper};
    part.disk_first_id = layers::kDiskFirstId;
    contents.parts.push_back(part);
  }
  return contents;
}

// Commands `true`, with ids from 1 on.
inline void add_execs(ArchiveContents& contents, int64_t count) {
  state_db::ExecRow row;
  row.request.argv = {"true"};
  row.request.user = "user";
  row.state = row.outcome.state = state_db::ExecState::exited;
  std::string lines;
  for (row.id.value = 1; row.id.value <= count; ++row.id.value) lines += write_exec_line(row);
  base::write_all(contents.execs.fd.get(), lines);
  contents.execs.bytes = lines.size();
}

}  // namespace moorage::workspace
