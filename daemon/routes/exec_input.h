// Standard input of a running exec, from a request body. Each piece carries its offset, so a client
// that lost its connection resumes at the command's position and no byte is delivered twice.
#pragma once

#include <memory>

#include "daemon/http/exchange.h"
#include "workspace/verbs/execs.h"

namespace moorage::daemon {

struct InputOptions {
  uint64_t offset = 0;       // input bytes before this body
  bool close_after = false;  // a complete body also ends the input
};

std::unique_ptr<BodySink> feed_input(workspace::Execs& execs, const workspace::Caller& caller,
                                     base::ExecId id, const InputOptions& options);

}  // namespace moorage::daemon
