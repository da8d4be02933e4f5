#include "workspace/archive/file.h"

#include <fcntl.h>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "packs/tar_to_layer.h"

namespace moorage::workspace {
namespace {

constexpr std::string_view kJournals = "journal/";
constexpr std::string_view kOutput = "/output";
constexpr std::string_view kLayers = "layers/";

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(Code::invalid_argument, "entry " + base::escape_for_message(path) + " " + why,
              "moorage did not write this archive");
}

// Enforces the fixed order of entries.
class Sequence {
 public:
  Sequence(const ReadOptions& options, packs::ArchiveReader& reader, ArchiveVisitor& visitor)
      : options_(options), reader_(reader), visitor_(visitor) {}

  void take(const packs::ArchiveEntry& entry) {
    const Stage stage = stage_of(entry.path);
    const bool repeats = stage == Stage::journal || stage == Stage::layer;
    // The first four entries appear exactly once, and none comes before those that it depends on.
    const int step = static_cast<int>(stage) - static_cast<int>(stage_);
    const bool in_order =
        step == 1 || (step == 0 && repeats) || (stage_ == Stage::execs && stage == Stage::layer);
    if (!in_order) refuse(entry.path, "is out of order");
    stage_ = stage;
    if (stage != Stage::layer && entry.type != packs::NodeType::file)
      refuse(entry.path, "is not a file");
    visit(stage, entry);
  }

  void finish() {
    finish_part();
    if (stage_ != Stage::layer || next_part_ != layers_ * std::size(kLayerParts)) {
      throw Error(Code::invalid_argument, "the archive is not a complete workspace",
                  "moorage did not write this archive");
    }
  }

 private:
  enum class Stage { none, manifest, refs, pack, execs, journal, layer };

  static Stage stage_of(const std::string& path) {
    if (path == packs::kManifestPath) return Stage::manifest;
    if (path == packs::kRefsPath) return Stage::refs;
    if (path == packs::kPackPath) return Stage::pack;
    if (path == packs::kExecsPath) return Stage::execs;
    if (path.starts_with(kJournals)) return Stage::journal;
    if (path.starts_with(kLayers)) return Stage::layer;
    refuse(path, "does not belong in an archive");
  }

  void visit(Stage stage, const packs::ArchiveEntry& entry) {
    switch (stage) {
      case Stage::manifest: {
        const Manifest manifest = parse_manifest(reader_.read_all(kMaxManifestBytes));
        layers_ = manifest.layers.size();
        return visitor_.manifest(manifest);
      }
      case Stage::refs:
        return visitor_.refs(reader_.read_all(kMaxRefsBytes));
      case Stage::pack:
        return visitor_.pack(reader_, entry.size);
      case Stage::execs:
        return read_execs();
      case Stage::journal:
        return visitor_.journal(exec_of(entry.path), reader_);
      case Stage::layer:
        return take_layer_entry(entry);
      case Stage::none:
        break;
    }
  }

  void read_execs() {
    std::string rest;
    uint64_t position = 0;
    for (packs::ArchiveReader::Piece piece; reader_.read(piece);) {
      if (piece.offset != position) refuse(std::string(packs::kExecsPath), "must not be sparse");
      position += piece.bytes.size();
      rest += piece.bytes;
      size_t begin = 0;
      for (size_t end = 0; (end = rest.find('\n', begin)) != std::string::npos; begin = end + 1) {
        visitor_.exec(parse_exec_line(std::string_view(rest).substr(begin, end - begin)));
      }
      rest.erase(0, begin);
      if (rest.size() > kMaxExecLineBytes)
        refuse(std::string(packs::kExecsPath), "has a line that is too long");
    }
    if (!rest.empty()) refuse(std::string(packs::kExecsPath), "ends in the middle of a line");
  }

  static base::ExecId exec_of(const std::string& path) {
    const std::string name =
        path.substr(kJournals.size(), path.find('/', kJournals.size()) - kJournals.size());
    const auto id = base::ExecId::parse(name);
    if (!id || path != std::string(kJournals) + name + std::string(kOutput)) {
      refuse(path, "does not belong in an archive");
    }
    return *id;
  }

  // Parts follow one another in the order of the manifest's layers, each starting with its root.
  void take_layer_entry(const packs::ArchiveEntry& entry) {
    const bool begins =
        next_part_ < layers_ * std::size(kLayerParts) && entry.path == prefix_at(next_part_);
    if (begins) {
      finish_part();
      const size_t layer = next_part_ / std::size(kLayerParts);
      const auto upper = visitor_.upper(layer, kLayerParts[next_part_ % std::size(kLayerParts)]);
      part_ = prefix_at(next_part_++);
      if (upper) {
        restorer_.emplace(*upper, part_, options_.disk_first_id);
      } else {
        dry_run_.emplace(part_, options_.disk_first_id, options_.unnamed_file);
      }
    } else if (!entry.path.starts_with(part_ + "/") || part_.empty()) {
      refuse(entry.path, "is out of order");
    }
    restorer_ ? restorer_->take(entry, reader_) : dry_run_->take(entry, reader_);
  }

  void finish_part() {
    if (restorer_) restorer_->finish();
    if (dry_run_) dry_run_->finish();
    restorer_.reset();
    dry_run_.reset();
  }

  static std::string prefix_at(size_t place) {
    return part_prefix(place / std::size(kLayerParts), kLayerParts[place % std::size(kLayerParts)]);
  }

  const ReadOptions& options_;
  packs::ArchiveReader& reader_;
  ArchiveVisitor& visitor_;
  Stage stage_ = Stage::none;
  size_t layers_ = 0;
  size_t next_part_ = 0;
  std::string part_;
  // Exactly one of these is set during a part.
  std::optional<packs::LayerRestorer> restorer_;
  std::optional<packs::LayerDryRun> dry_run_;
};

void write_journal(packs::ArchiveWriter& writer, const ArchiveContents::Journals& journals,
                   base::ExecId exec) {
  const std::string name = std::string(kJournals) + exec.str() + std::string(kOutput);
  if (const auto copy = journals.copies.find(exec); copy != journals.copies.end())
    return writer.put_file(name, copy->second.fd.get(), copy->second.bytes);
  base::Fd file;
  try {
    file = base::open_file(journals.path(exec), O_RDONLY | O_NOFOLLOW);
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
    return;  // workspace/upkeep/output_retention.h may delete old output even during an export
  }
  writer.put_journal(name, file.get());
}

}  // namespace

std::string part_prefix(size_t layer, const std::string& part) {
  return std::string(kLayers) + std::to_string(layer) + "/" + part;
}

packs::ArchiveFacts write_archive(const ArchiveContents& contents,
                                  const packs::WriterOptions& options, packs::ByteSink sink) {
  // Check depth before writing: a client that already has a part only sees that the rest is
  // missing.
  for (const packs::LayerPart& part : contents.parts) require_archivable_depth(part);
  packs::ArchiveWriter writer(options, std::move(sink));
  writer.put(std::string(packs::kManifestPath), write_manifest(contents.manifest));
  writer.put(std::string(packs::kRefsPath), contents.refs);
  writer.put_file(std::string(packs::kPackPath), contents.pack.fd.get(), contents.pack.bytes);
  writer.put_file(std::string(packs::kExecsPath), contents.execs.fd.get(), contents.execs.bytes);
  for (const auto exec : contents.journals.of) write_journal(writer, contents.journals, exec);
  for (const packs::LayerPart& part : contents.parts) archive_layer_part(writer, part);
  if (contents.before_end) contents.before_end();
  return writer.finish();
}

void write_data(packs::ArchiveReader& reader, int fd) {
  for (packs::ArchiveReader::Piece piece; reader.read(piece);) base::write_all(fd, piece.bytes);
}

packs::ArchiveFacts read_archive(packs::ByteSource source, const ReadOptions& options,
                                 ArchiveVisitor& visitor) {
  packs::ArchiveReader reader(std::move(source), options.limits);
  Sequence sequence(options, reader, visitor);
  while (const packs::ArchiveEntry* entry = reader.next()) sequence.take(*entry);
  sequence.finish();
  return reader.facts();
}

}  // namespace moorage::workspace
