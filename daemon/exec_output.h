// What an exec wrote, as an endless or finished body. Read from the journal alone, so it works from
// any offset, for any number of readers, during the run and long after the sandbox is gone; the
// subscription only says when to look again. A reader that leaves changes nothing for the command.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/journal.h"
#include "daemon/exchange.h"
#include "workspace/execs.h"

namespace moorage::daemon {

struct OutputOptions {
  uint64_t offset = 0;                      // output bytes to skip
  std::optional<uint64_t> tail_bytes = {};  // instead: start this many bytes before the present end
  bool follow = false;                      // until the exec has ended
  bool late = false;                        // also what processes that it left wrote after its end
  bool raw = false;  // the bytes alone (see OutputBody); otherwise records of base/output_stream.h
  bool standard_output = true;  // with raw: which streams; a terminal is standard output
  bool standard_error = true;
};

// Records: position, output..., and if the exec is over when all is told, end. Another position
// comes where output is not kept, and before late output. Bytes alone have no place for that:
// `gaps` says what they pass over, and where a gap appears while they are read, the body is cut.
// invalid_argument: the offset is past the end of an exec that is over.
struct OutputBody {
  std::unique_ptr<BodySource> source;
  std::vector<base::JournalReader::GapPlace> gaps;  // with raw
};
OutputBody stream_output(workspace::Execs& execs, const workspace::Caller& caller, base::ExecId id,
                         const OutputOptions& options);

// One JSON answer, when the exec is over or `timeout` has passed. Holds no thread while it waits.
std::unique_ptr<BodySource> wait_for_end(workspace::Execs& execs, const workspace::Caller& caller,
                                         base::ExecId id, std::chrono::milliseconds timeout);

}  // namespace moorage::daemon
