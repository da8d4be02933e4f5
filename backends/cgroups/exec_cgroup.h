// ExecGroup (exec_group.h) as control groups below a sandbox's commands part (cgroups.h).
#pragma once

#include <memory>
#include <string>

#include "backends/cgroups/cgroups.h"
#include "backends/cgroups/exec_group.h"

namespace moorage::backends {

// `commands` is "NAME/cmd", relative to each hierarchy. Creates missing groups.
std::unique_ptr<ExecGroup> make_exec_cgroup(const CgroupHierarchies& hierarchies,
                                            const std::string& commands,
                                            const std::string& exec_name);

}  // namespace moorage::backends
