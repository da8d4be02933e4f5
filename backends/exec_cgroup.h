// ExecGroup (exec_group.h) as control groups below the commands' part of a sandbox (cgroups.h).
#pragma once

#include <memory>
#include <string>

#include "backends/cgroups.h"
#include "backends/exec_group.h"

namespace moorage::backends {

// `commands` is "NAME/cmd", relative to each hierarchy. Makes what is missing.
std::unique_ptr<ExecGroup> make_exec_cgroup(const CgroupHierarchies& hierarchies,
                                            const std::string& commands,
                                            const std::string& exec_name);

}  // namespace moorage::backends
