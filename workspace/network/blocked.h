#pragma once

#include <string>

#include "base/ids.h"

namespace moorage::workspace {

// A running command that was refused a host, and may wait for it.
struct Blocked {
  std::string host;  // "github.com:22", or only the name
  base::ExecId exec;
};

}  // namespace moorage::workspace
