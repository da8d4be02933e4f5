// The commands of a workspace in a report: all are counted, the last ones become rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/client/json.h"
#include "cli/report/writer.h"

namespace moorage::cli {

class Context;

struct CommandRow {
  std::string id;
  std::string started;  // "2026-11-23 18:35:03"
  std::string took;
  std::string command;  // at most 400 characters of it
  std::string result;
  Text remark;                       // "as root", "before stop"; mostly empty
  std::vector<std::string> notices;  // explanations of the result
  std::string changed;
  uint64_t output_bytes = 0;
  bool failed = false;
  bool running = false;
};

struct CommandList {
  std::vector<CommandRow> rows;  // the newest first, at most the requested number
  uint64_t ran = 0;              // all that were read
  uint64_t failed = 0;
  uint64_t running = 0;
  bool older = false;  // there are more than a report reads
};

CommandList list_commands(Context& context, const std::string& workspace, size_t most_rows);

void write_commands(ReportWriter& writer, const CommandList& list, const std::string& workspace);
// The last output of failed commands and of the latest ones.
struct OutputLimits {
  size_t failed = 20;
  size_t last = 3;
  uint64_t tail_bytes = 8 << 10;
};
void write_outputs(Context& context, ReportWriter& writer, const CommandList& list,
                   const OutputLimits& limits);

// "2026-11-23T18:35:03.114Z" -> "2026-11-23 18:35:03".
std::string report_time(const std::string& utc);
// "none", "812 bytes", "64K".
std::string report_size(uint64_t bytes);
// Removes terminal colors, and turns terminal line ends into plain ones.
std::string without_colours(std::string_view output);

}  // namespace moorage::cli
