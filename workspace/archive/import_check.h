// Whether an archive's contents allow an import: names, limits, layers, snapshots, commands and
// their output. An import is a subclass that also writes what it reads; an export is read back by
// one that writes nothing. So whatever an export reports as whole can be imported. Only the import
// checks what depends on the host (its images, its disk, names in use).
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "base/byte_pipe.h"
#include "base/ids.h"
#include "base/os/fd.h"
#include "workspace/archive/file.h"

namespace moorage::workspace {

// Maps the command ids of an archive to their ids in this store. An agent that loops for months has
// millions, so they go into an unnamed file, 16 bytes each. An archive lists them by ascending old
// id; find() is a binary search.
class ExecIds {
 public:
  explicit ExecIds(base::Fd file) : file_(std::move(file)) {}
  void add(base::ExecId old, base::ExecId now);  // old ids must ascend
  std::optional<base::ExecId> find(base::ExecId old);

 private:
  void flush();

  const base::Fd file_;
  uint64_t count_ = 0;  // in the file
  std::string added_;   // not yet in the file
};

class ImportCheck : public ArchiveVisitor {
 public:
  // `unnamed_file` stores its commands' ids. `name` replaces the name in the archive.
  explicit ImportCheck(const std::function<base::Fd()>& unnamed_file, std::string name = "")
      : name_(std::move(name)), ids_(unnamed_file()) {}

  // Each throws for contents that an import refuses.
  void manifest(const Manifest& manifest) override;
  void refs(const std::string& text) override;
  void exec(const state_db::ExecRow& row) override;
  void journal(base::ExecId old, packs::ArchiveReader& reader) override;

 protected:
  void check_exec(const state_db::ExecRow& row);
  base::ExecId check_journal(base::ExecId old);  // returns its new id
  const std::string& wanted_name() const;

  const std::string name_;
  Manifest manifest_;
  std::vector<std::string> objects_;  // needed by its references
  ExecIds ids_;                       // of accepted commands; a check alone assigns no new ids

 private:
  void check_layers() const;
  void check_snapshot(const ManifestSnapshot& snapshot);

  std::set<std::string> snapshot_names_;
  base::ExecId last_exec_{};
  base::ExecId last_journal_{};
};

// Reads an archive while it is written, with the checks of an import, and releases
// its last bytes only if everything reads back as written. So an export that ends can be imported,
// and a bug in the writer fails the export instead of losing work.
class ReadBack {
 public:
  // `sink` gets all bytes in order; the trailer only after finish().
  ReadBack(packs::ByteSink sink, const ReadOptions& options);
  ~ReadBack();  // without finish(): the export was abandoned

  void write(std::string_view bytes);  // rethrows errors of the reader and the sink
  // After the last byte. Throws corrupted if the bytes read back differ.
  void finish(const packs::ArchiveFacts& written);

 private:
  void read();
  void join();

  const packs::ByteSink sink_;
  const ReadOptions options_;
  std::string held_;
  base::BytePipe pipe_;
  // Belong to the reader until it is joined.
  packs::ArchiveFacts found_;
  std::exception_ptr failure_;
  std::thread reader_;
};

}  // namespace moorage::workspace
