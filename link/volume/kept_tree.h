// A base tree whose pack lies in a volume of the provider, so that the next machine takes it from
// there. Anybody on another machine may have changed that file, so what it must be is noted here
// while it is sent: config.kept_trees/KEY, for each base tree the newest such file. A note says
// nothing about what became of the file. No note, or one that does not hold, costs a push.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/wire/link_config.h"

namespace moorage::link {

// Where drivers mount the part of the volume that has this base tree.
inline constexpr const char* kVolumePlace = "/mnt/moorage-trees";

struct KeptTree {
  std::string name;    // of the file below kVolumePlace
  std::string digest;  // SHA-256 in hex
  uint64_t bytes = 0;
};

std::string new_kept_name(const base::LinkConfig& config);
// Of config.base. A note that cannot be read counts as none.
std::optional<KeptTree> read_kept_tree(const base::LinkConfig& config);
void note_kept_tree(const base::LinkConfig& config, const KeptTree& kept);

}  // namespace moorage::link
