// The head of a file in a pax tar: the extended records, the ustar header and, for a file with
// holes, the map of its data (GNU sparse 1.0). Hand-written, because libarchive 3.6 misnames a
// sparse file whose path does not fit a ustar header. Every tar reader understands it: a path,
// target or size that does not fit the header is a record of its own.
#pragma once

#include <cstdint>
#include <string>

#include "packs/tar_entry.h"

namespace moorage::packs {

inline constexpr uint64_t kTarBlockBytes = 512;

// Throws unsupported for more attributes than readers accept.
std::string tar_head(const ArchiveEntry& entry);
// The bytes of a file's content after its head, without holes.
uint64_t tar_content_bytes(const ArchiveEntry& entry);
// Zeros after this many bytes, up to the next head.
std::string tar_padding(uint64_t bytes);

}  // namespace moorage::packs
