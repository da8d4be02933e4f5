// The output of an exec, as an endless or finished body. It is read only from the journal, so it
// works from any offset, for any number of readers, during the run and long after the sandbox is
// gone; the subscription only wakes readers. A reader that leaves does not affect the command.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/wire/journal.h"
#include "daemon/http/exchange.h"
#include "workspace/verbs/execs.h"

namespace moorage::daemon {

struct OutputOptions {
  uint64_t offset = 0;                      // output bytes to skip
  std::optional<uint64_t> tail_bytes = {};  // instead: start this far before the current end
  bool follow = false;                      // until the exec ends
  bool late = false;                        // also output of leftover processes after its end
  // Only the bytes (see OutputBody); otherwise records of base/wire/output_stream.h.
  bool raw = false;
  bool standard_output = true;  // with raw: choose streams; a terminal is standard output
  bool standard_error = true;
  // Lines for the user who follows, sent as they appear: hosts that the command was refused.
  std::function<std::vector<std::string>()> notices = {};
};

// Records: position, output..., and after all output of a finished exec, end. Another position
// follows removed output and precedes late output. Raw bytes have no place for that: `gaps` lists
// what is missing, and a gap that appears while they are read cuts the body.
// invalid_argument: the offset is past the end of a finished exec.
struct OutputBody {
  std::unique_ptr<BodySource> source;
  std::vector<base::JournalReader::GapPlace> gaps;  // with raw
};
OutputBody stream_output(workspace::Execs& execs, const workspace::Caller& caller, base::ExecId id,
                         const OutputOptions& options);

// One JSON answer, once the exec ends or `timeout` passes. Holds no thread while it waits.
std::unique_ptr<BodySource> wait_for_end(workspace::Execs& execs, const workspace::Caller& caller,
                                         base::ExecId id, std::chrono::milliseconds timeout);

}  // namespace moorage::daemon
