// Archives in memory.
#pragma once

#include <sys/mman.h>

#include <functional>
#include <string>
#include <string_view>

#include "base/os/fd.h"
#include "layers/storage_fixture.h"
#include "layers/tree_manifest.h"
#include "packs/layer_to_tar.h"
#include "packs/tar_reader.h"
#include "packs/tar_to_layer.h"

namespace moorage::packs {

using layers::kAgent;
using layers::kDiskFirstId;
using layers::TemporaryDirectory;
using layers::TreeManifest;

inline base::Fd unnamed_file() { return base::Fd(memfd_create("unnamed", MFD_CLOEXEC)); }

inline std::string write_archive(const std::function<void(ArchiveWriter&)>& fill,
                                 ArchiveFacts* facts = nullptr) {
  std::string bytes;
  ArchiveWriter writer({.level = 3, .threads = 1, .unnamed_file = unnamed_file},
                       [&](std::string_view piece) { bytes += piece; });
  fill(writer);
  const ArchiveFacts made = writer.finish();
  if (facts) *facts = made;
  return bytes;
}

// Pieces of odd sizes, as from a socket.
inline ByteSource from_memory(const std::string& bytes) {
  return [&bytes, at = size_t{0}]() mutable {
    const std::string_view piece = std::string_view(bytes).substr(at, 7919);
    at += piece.size();
    return piece;
  };
}

inline std::string archive_part(const LayerPart& part, ArchiveFacts* facts = nullptr) {
  return write_archive([&](ArchiveWriter& writer) { archive_layer_part(writer, part); }, facts);
}

inline ArchiveFacts restore_part(const std::string& bytes, const std::string& upper,
                                 const ReadLimits& limits = {}) {
  ArchiveReader reader(from_memory(bytes), limits);
  LayerRestorer restorer(upper, "layers/0/tree", kDiskFirstId);
  while (const ArchiveEntry* entry = reader.next()) restorer.take(*entry, reader);
  restorer.finish();
  return reader.facts();
}

}  // namespace moorage::packs
