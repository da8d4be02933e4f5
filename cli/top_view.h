// What `top` shows, as text: rows made of one or two answers of GET /v1/top, and a frame of a given
// size made of rows. Everything here is pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/json.h"
#include "cli/table.h"
#include "cli/terminal.h"

namespace moorage::cli {

enum class TopOrder { cpu, memory, disk, name };

struct TopRow {
  std::string id;
  std::string name;
  std::string owner;  // "you", "uid 1004"
  std::string state;  // running, waiting, idle, stopped, or the life cycle's word
  int64_t execs = 0;
  std::optional<double> cpu_percent;  // of one CPU; needs two answers
  std::optional<uint64_t> memory_bytes;
  std::optional<uint64_t> disk_bytes;
  uint64_t memory_limit_bytes = 0;
  int64_t processes = -1;
  int64_t silent_ms = -1;  // since the last output; -1: none
  std::string doing;       // "ex_12 npm test"; the one that waits, if one does
};

// `before` may be a null Json. Sorted, the largest first; names from a to z.
std::vector<TopRow> top_rows(const Json& now, const Json& before, TopOrder order);
// The rows as a table; wide: with owner, processes and limits.
Table top_table(const std::vector<TopRow>& rows, bool wide);
// "5 workspaces, 2 running, 1 waits for input".
std::string top_counts(const std::vector<TopRow>& rows);

struct TopScreen {
  WindowSize size{};
  bool colours = false;
  TopOrder order = TopOrder::cpu;
  bool own = false;
  std::string selected;  // id of the row, empty: none
  size_t first = 0;      // row at the top
  std::string clock;     // "12:03:41"
  std::string trouble;   // why the figures are old
};
// Moves `first` so that the selected row is on the screen; then one frame, from the top left
// corner, that leaves nothing of the one before.
std::string top_frame(const Json& now, const std::vector<TopRow>& rows, TopScreen& screen);

}  // namespace moorage::cli
