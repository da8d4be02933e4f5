// Writes one part of a layer (the upper directory of its tree, home or system) into an archive: its
// own entries, not the merged view. Whiteouts and opaque directories are ordinary entries. A
// renamed directory (overlay's redirect) means nothing over another parent, so it is written as an
// opaque one with its full contents, taken from the layers and the base below. The directory must
// not be in use. It is untrusted, so nothing is opened through a link or by a long path.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "packs/tar_writer.h"

namespace moorage::packs {

using PassOver = std::function<void(const std::string& path, const Error& error)>;

struct LayerPart {
  std::string prefix;               // "layers/0/tree"
  std::vector<std::string> uppers;  // this layer's directory, then those below it, deltas of
                                    // the base included
  std::string base;                 // the lowest directory; empty: none
  uint32_t disk_first_id = 0;
  std::function<void()> on_entry = {};  // after each entry; may throw to stop
  // Called with an entry that cannot be archived, and why. The entry is left out; if a file could
  // not be read to its end, the rest is zeros. May throw to stop. Unset: the first error is thrown.
  PassOver pass_over = {};
};

// Throws unsupported now, rather than letting archive_layer_part fail in the middle of a stream.
// Does not check directories reached only through a redirect.
void require_archivable_depth(const LayerPart& part);

void archive_layer_part(ArchiveWriter& writer, const LayerPart& part);

inline constexpr unsigned kMaxArchiveDepth = 900;  // of directories: each keeps a descriptor open

}  // namespace moorage::packs
