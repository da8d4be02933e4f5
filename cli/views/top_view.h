// The text of `top`: turns one or two answers of GET /v1/top into rows, and rows into a frame of a
// given size. Everything here is pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/client/json.h"
#include "cli/output/table.h"
#include "cli/output/terminal.h"

namespace moorage::cli {

enum class TopOrder { cpu, memory, disk, name };

struct TopRow {
  std::string id;
  std::string name;
  std::string owner;  // "you", "alice", "uid 1004"
  std::string state;  // running, waiting, idle, stopped, or the life cycle state
  int64_t execs = 0;
  std::optional<double> cpu_percent;  // of one CPU; needs two answers
  std::optional<uint64_t> memory_bytes;
  std::optional<uint64_t> disk_bytes;
  uint64_t memory_limit_bytes = 0;
  int64_t processes = -1;
  int64_t silent_ms = -1;                // since the last output; -1: none
  int64_t connections = -1;              // open ones; -1: it uses no network
  std::optional<uint64_t> network_rate;  // bytes per second, both directions
  std::string doing;                     // "ex_12 npm test"; prefers a command that waits for input
};

// `before` may be a null Json. Sorted largest first; names from a to z.
std::vector<TopRow> top_rows(const Json& now, const Json& before, TopOrder order);
// The rows as a table; wide adds owner, processes and limits.
Table top_table(const std::vector<TopRow>& rows, bool wide);
// "5 workspaces, 2 running, 1 waits for input".
std::string top_counts(const std::vector<TopRow>& rows);

struct TopScreen {
  WindowSize size{};
  bool colours = false;
  TopOrder order = TopOrder::cpu;
  bool own = false;
  std::string selected;  // id of the row, empty: none
  size_t first = 0;      // index of the first visible row
  std::string clock;     // "12:03:41"
  std::string trouble;   // why the figures are stale
};
// Moves `first` so that the selected row is visible, then returns a frame that fully replaces the
// previous one.
std::string top_frame(const Json& now, const std::vector<TopRow>& rows, TopScreen& screen);

}  // namespace moorage::cli
