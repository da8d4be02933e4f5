// A patch as a part of a report: a fold for each file, cut at a limit with a note. It is read as a
// stream and never holds more than half a megabyte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/report/writer.h"

namespace moorage::cli {

struct PatchLimits {
  uint64_t file_bytes = 64 << 10;  // shown for each file
  uint64_t total_bytes = 1 << 20;  // shown in total
};

class ReportPatch {
 public:
  ReportPatch(ReportWriter& writer, const PatchLimits& limits) : writer_(writer), limits_(limits) {}
  void feed(std::string_view bytes);
  void finish();

  uint64_t files() const { return files_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t bytes_left_out() const { return bytes_ - shown_; }
  uint64_t files_left_out() const { return files_left_out_; }  // files without any shown line

 private:
  void take(std::string_view piece);
  void begin_file(std::string_view header);
  void show_block();
  void end_file();

  ReportWriter& writer_;
  const PatchLimits limits_;
  std::string held_;  // an unfinished line that may start a file
  bool at_line_start_ = true;
  uint64_t files_ = 0, files_left_out_ = 0, bytes_ = 0, shown_ = 0;

  bool in_file_ = false;
  bool fold_begun_ = false;
  std::string path_;
  std::string block_;
  uint64_t file_bytes_ = 0, file_shown_ = 0;
};

}  // namespace moorage::cli
