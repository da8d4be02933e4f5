// One whole archive, in its order: manifest.json, git/refs, git/pack, execs.jsonl,
// journal/<exec>/output, layers/<n>/{tree,home,system}/..., index.jsonl. The manifest comes first,
// so that the rest can be refused early; the layers come last, because they need all the others.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "packs/layer_to_tar.h"
#include "packs/tar_reader.h"
#include "packs/tar_writer.h"
#include "workspace/archive/manifest.h"

namespace moorage::workspace {

struct SpooledFile {
  base::Fd fd;
  uint64_t bytes = 0;
};

struct ArchiveContents {
  Manifest manifest;
  std::string refs;
  SpooledFile pack;
  SpooledFile execs;
  struct Journals {                  // there may be millions
    std::vector<base::ExecId> of{};  // ascending, like the commands
    std::function<std::string(base::ExecId)> path = {};
    std::map<base::ExecId, SpooledFile> copies{};  // used instead, for running commands
  };
  Journals journals;
  std::vector<packs::LayerPart> parts;      // layer 0 first; prefixes are set
  std::shared_ptr<const void> base_in_use;  // the base tree below the parts
  // Runs after everything is read, before the end that completes the archive; may throw.
  std::function<void()> before_end = {};
};

// "layers/0/tree"
std::string part_prefix(size_t layer, const std::string& part);
inline constexpr const char* kLayerParts[] = {"tree", "home", "system"};

packs::ArchiveFacts write_archive(const ArchiveContents& contents,
                                  const packs::WriterOptions& options, packs::ByteSink sink);

// Receives the entries of an archive. A method that is not overridden only checks them
// (packs/layer_check.h).
class ArchiveVisitor {
 public:
  virtual ~ArchiveVisitor() = default;
  virtual void manifest(const Manifest&) {}
  virtual void refs(const std::string&) {}
  virtual void pack(packs::ArchiveReader&, uint64_t /*bytes*/) {}
  virtual void exec(const state_db::ExecRow&) {}
  virtual void journal(base::ExecId, packs::ArchiveReader&) {}
  // An empty directory for this part of a layer; nullopt: only check it.
  virtual std::optional<std::string> upper(size_t /*layer*/, const std::string& /*part*/) {
    return std::nullopt;
  }
};

void write_data(packs::ArchiveReader& reader, int fd);  // the rest of the current entry

// Returns after everything is read and verified. Throws as ArchiveReader does.
struct ReadOptions {
  packs::ReadLimits limits;
  uint32_t disk_first_id = 0;
  std::function<base::Fd()> unnamed_file;  // for names in parts that are only checked
};
packs::ArchiveFacts read_archive(packs::ByteSource source, const ReadOptions& options,
                                 ArchiveVisitor& visitor);

}  // namespace moorage::workspace
