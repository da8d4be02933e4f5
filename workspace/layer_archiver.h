// Writes one part of a layer (the upper directory of its tree, home or system) into an archive:
// what is in it, not what it looks like merged. Whiteouts and opaque directories are entries like
// others. A renamed directory (overlay's redirect) means nothing over another parent: it is written
// as an opaque one with all that is in it, taken from the layers and the base below. The directory
// must be at rest; it is a stranger's, so nothing is opened through a link or by a long path.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "workspace/archive_writer.h"

namespace moorage::workspace {

using PassOver = std::function<void(const std::string& path, const base::Error& error)>;

struct LayerPart {
  std::string prefix;               // "layers/0/tree"
  std::vector<std::string> uppers;  // this layer's directory, then those below it, deltas of
                                    // the base included
  std::string base;                 // the lowest directory; empty: none
  uint32_t disk_first_id = 0;
  std::function<void()> on_entry = {};  // after each; may throw to stop
  // Told of what cannot be archived and why. It is left out then; of a file that could not be read
  // to its end, the rest is zeros. It may throw to stop. Empty: the first error is thrown.
  PassOver pass_over = {};
};

// Throws unsupported, as archive_layer_part would in the middle of a stream. A directory that is
// reached only through a redirect is not looked at.
void require_archivable_depth(const LayerPart& part);

void archive_layer_part(ArchiveWriter& writer, const LayerPart& part);

inline constexpr unsigned kMaxArchiveDepth = 900;  // of directories: a descriptor each while at it

}  // namespace moorage::workspace
