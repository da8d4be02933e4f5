// One archive as a whole, in its order: manifest.json, git/refs, git/pack, execs.jsonl,
// journal/<exec>/output, layers/<n>/{tree,home,system}/..., index.jsonl. The manifest first, so
// that what follows can be refused before it is taken; the layers last, as they need the rest.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "workspace/archive_manifest.h"
#include "workspace/archive_reader.h"
#include "workspace/archive_writer.h"
#include "workspace/layer_archiver.h"

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
    std::vector<base::ExecId> of{};  // ascending, as the commands are
    std::function<std::string(base::ExecId)> path = {};
    std::map<base::ExecId, SpooledFile> copies{};  // instead, of those that run
  };
  Journals journals;
  std::vector<LayerPart> parts;             // of layer 0 first; prefixes are set
  std::shared_ptr<const void> base_in_use;  // the base tree that they lie on
  // When all of it was read, and before the end that makes a whole archive of it; may throw.
  std::function<void()> before_end = {};
};

// "layers/0/tree"
std::string part_prefix(size_t layer, const std::string& part);
inline constexpr const char* kLayerParts[] = {"tree", "home", "system"};

ArchiveFacts write_archive(const ArchiveContents& contents, WriterOptions options, ByteSink sink);

// What is done with what is read. Without answer what comes is only checked (layer_check.h).
class ArchiveVisitor {
 public:
  virtual ~ArchiveVisitor() = default;
  virtual void manifest(const Manifest&) {}
  virtual void refs(const std::string&) {}
  virtual void pack(ArchiveReader&, uint64_t /*bytes*/) {}
  virtual void exec(const state_db::ExecRow&) {}
  virtual void journal(base::ExecId, ArchiveReader&) {}
  // The empty directory that this part of a layer goes into.
  virtual std::optional<std::string> upper(size_t /*layer*/, const std::string& /*part*/) {
    return std::nullopt;
  }
};

// Returns when all was read and verified. Throws as ArchiveReader does.
struct ReadOptions {
  ReadLimits limits;
  uint32_t disk_first_id = 0;
  std::function<base::Fd()> unnamed_file;  // for names of what is only checked (layer_check.h)
};
ArchiveFacts read_archive(ByteSource source, const ReadOptions& options, ArchiveVisitor& visitor);

}  // namespace moorage::workspace
