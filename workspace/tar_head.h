// What stands in front of a file's content in a pax tar: the extended records, the ustar header
// and, for a file with holes, the map of its data (GNU sparse 1.0). Written by hand, as
// libarchive 3.6 names a sparse file wrongly whose path does not fit a ustar header. Everything
// that reads tar reads this: a path, a target or a size that the header has no place for is a
// record of its own.
#pragma once

#include <cstdint>
#include <string>

#include "workspace/archive_entry.h"

namespace moorage::workspace {

inline constexpr uint64_t kTarBlockBytes = 512;

// Throws unsupported for attributes that no reader would take, as they are too many.
std::string tar_head(const ArchiveEntry& entry);
// Of a file: the bytes of content that follow its head, holes left out.
uint64_t tar_content_bytes(const ArchiveEntry& entry);
// Zeros behind so many bytes, up to the next head.
std::string tar_padding(uint64_t bytes);
// Behind the last entry.
std::string tar_end();

}  // namespace moorage::workspace
