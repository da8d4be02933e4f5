// The commands that the warden thinks are running.
#pragma once

#include <sys/types.h>

#include <list>

#include "base/os/fd.h"
#include "warden/spawn.h"

namespace moorage::fuzz {

inline constexpr pid_t kFirstPid = 0x7000'0000;  // beyond every pid_max: signals reach no process

struct Command {
  pid_t child = 0;  // or its keeper
  base::Fd input;   // the command's ends
  base::Fd output;
  base::Fd error;
};
std::list<Command>& commands();  // newest last

}  // namespace moorage::fuzz
