// Whether an archive can be imported, as far as its contents say: names, limits, layers, snapshots,
// commands and their output. An import is one of these that also makes what it reads; an export is
// read back by one that makes nothing. So what an export calls whole is what an import takes. What
// depends on the host (its images, its disk, names that are taken) only the import knows.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "base/fd.h"
#include "workspace/archive_file.h"
#include "workspace/exec_ids.h"

namespace moorage::workspace {

class ImportCheck : public ArchiveVisitor {
 public:
  // `unnamed_file` for the ids of its commands. `name` is instead of the one in the archive.
  explicit ImportCheck(const std::function<base::Fd()>& unnamed_file, std::string name = "")
      : name_(std::move(name)), ids_(unnamed_file()) {}

  // Each throws for what an import refuses.
  void manifest(const Manifest& manifest) override;
  void refs(const std::string& text) override;
  void exec(const state_db::ExecRow& row) override;
  void journal(base::ExecId old, ArchiveReader& reader) override;

 protected:
  void check_exec(const state_db::ExecRow& row);
  base::ExecId check_journal(base::ExecId old);  // its new id
  const std::string& wanted_name() const;

  const std::string name_;
  Manifest manifest_;
  std::vector<std::string> objects_;  // that its references need
  ExecIds ids_;                       // of those that were taken in; without a new one: checked

 private:
  void check_layers() const;
  void check_snapshot(const ManifestSnapshot& snapshot);

  std::set<std::string> snapshot_names_;
  base::ExecId last_exec_{};
  base::ExecId last_journal_{};
};

}  // namespace moorage::workspace
