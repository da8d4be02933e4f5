// Standard input of a running exec, from a request body. Pieces carry the offset at which they
// belong, so a client that lost its connection goes on where the command's input stands and nothing
// is sent twice.
#pragma once

#include <memory>

#include "daemon/exchange.h"
#include "workspace/execs.h"

namespace moorage::daemon {

struct InputOptions {
  uint64_t offset = 0;       // bytes of input before this body
  bool close_after = false;  // the body's end, if it came whole, is the end of the input
};

std::unique_ptr<BodySink> feed_input(workspace::Execs& execs, const workspace::Caller& caller,
                                     base::ExecId id, const InputOptions& options);

}  // namespace moorage::daemon
