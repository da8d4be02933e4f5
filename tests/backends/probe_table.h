// The output of backend_probe in one sandbox, as a table, and the differences of two tables.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "results.h"
#include "sandbox_fixture.h"

namespace moorage::tests {

using Findings = std::map<std::string, std::string>;  // "unshare-user" -> "EPERM"

// Runs the probe in sandbox 1 as `user`.
Findings probe(SandboxFixture& sandboxes, const std::string& user);

// A line that may differ from lxc. `line` may end in "*".
struct Allowed {
  std::string backend;  // as in engines.h
  std::string line;
  std::string reason;
  bool of_some_kernels = false;  // equal on others, or at times, so not in docs/backends.md
};
const std::vector<Allowed>& allowed_differences();  // isolation_differences.cc

struct Comparison {
  size_t same = 0;
  std::vector<results::Difference> allowed;
  std::vector<std::string> not_allowed;  // "LINE: on lxc X, here Y"
};
Comparison compare(const std::string& backend, const Findings& on_lxc, const Findings& here,
                   const std::vector<Allowed>& allowed);

}  // namespace moorage::tests
