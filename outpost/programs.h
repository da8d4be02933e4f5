// Processes of this program, and the programs beside it.
#pragma once

#include <optional>
#include <string>

#include "base/os/fd.h"
#include "base/os/process.h"

namespace moorage::outpost {

std::string own_path();  // of this program's file

std::string warden_path();
// moorage-warden, beside this program. Those inside may execute it, and not read its memory: so
// nobody there can read the file.
Fd open_warden();

void write_own_pid(const std::string& path);
std::optional<base::ProcessIdentity> read_pid(const std::string& path);  // of a living process

}  // namespace moorage::outpost
