// `moorage-outpost connect`: joins its standard input and output to the sandbox's `serve`, and
// starts that one if it does not run. Its end, and the end of the session that it runs in, changes
// nothing there.
#pragma once

#include <cstdint>
#include <string>

#include "base/os/fd.h"

namespace moorage::outpost {

struct ConnectOptions {
  std::string directory;
  std::string name;
  uint64_t generation = 0;
  bool text = false;  // both streams are lines of base/wire/text_stream.h
};
// Returns at the end of the stream.
void connect_to_serve(const ConnectOptions& options);

// The lock that `serve` holds as long as it lives; empty: another process has it.
Fd lock_serve(const std::string& sandbox);

}  // namespace moorage::outpost
