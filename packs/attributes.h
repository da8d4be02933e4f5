// Extended attributes between a layer on disk and an archive. Kept: user.*, POSIX access lists, and
// file capabilities in the form that names a user namespace's root; an archive stores the ids in
// the latter two as inside ids. Left out: overlayfs's own (trusted.*), labels and seals of the host
// (other security.*), properties of one file system. Any other attribute in an archive is refused:
// it could mean something to the host.
#pragma once

#include <cstdint>
#include <string>

#include "layers/node.h"

namespace moorage::packs {

using layers::Attributes;

// Limit for reading one file's attributes. A file system may store more: 64 KiB of names, and as
// much for each value.
inline constexpr size_t kMaxFileAttributesBytes = 4 << 20;

// Stops after kMaxFileAttributesBytes: an archive holds less, and its writer refuses the file by
// name.
Attributes read_attributes(int fd, uint32_t disk_first_id);
// invalid_argument for an attribute that our archives never contain; `what` names the entry.
void check_attributes(const Attributes& attributes, uint32_t disk_first_id,
                      const std::string& what);
// Also checks them.
void write_attributes(int fd, const Attributes& attributes, uint32_t disk_first_id,
                      const std::string& what);

}  // namespace moorage::packs
