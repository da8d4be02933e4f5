#include "cli/views/top_view.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>

#include "cli/output/text.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

constexpr int kWide = 120;
constexpr int kNarrow = 76;
constexpr size_t kAround = 5;  // lines around the rows: title, sums, an empty line, heads, keys

std::optional<uint64_t> size_of(const Json& json, std::string_view field) {
  if (!json.has(field)) return std::nullopt;
  return static_cast<uint64_t>(json.number(field));
}

std::string state_of(const Json& workspace) {
  std::string state = workspace.text("state");
  if (state != "ready") return state;
  std::string sandbox = workspace.text("sandbox.state", "stopped");
  if (sandbox != "running") return sandbox;
  if (!workspace.items("waiting").empty()) return "waiting";
  return workspace.number("execs_running") > 0 ? "running" : "idle";
}

Colour colour_of(const std::string& state) {
  if (state == "running") return Colour::green;
  if (state == "idle") return Colour::plain;
  if (state == "stopped") return Colour::dim;
  return state == "lost" ? Colour::red : Colour::yellow;
}

std::string doing_of(const Json& workspace) {
  if (workspace.has("blocked")) return blocked_text(workspace);
  const std::vector<Json> waiting = workspace.items("waiting");
  const Json exec = waiting.empty() ? workspace.at("doing") : waiting.front();
  if (!exec.has("exec")) return "";
  return exec.text("exec") + " " + join_command(exec.byte_list("argv"));
}

// Between two samples of the same sandbox.
std::optional<double> cpu_percent(const Json& now, const Json& before, int64_t passed_us) {
  const bool same = before.text("sandbox.id") == now.text("sandbox.id");
  if (!now.has("sandbox.cpu_us") || !before.has("sandbox.cpu_us") || !same || passed_us <= 0)
    return std::nullopt;
  const int64_t used = now.number("sandbox.cpu_us") - before.number("sandbox.cpu_us");
  return 100.0 * static_cast<double>(std::max<int64_t>(0, used)) / static_cast<double>(passed_us);
}

std::optional<uint64_t> network_rate(const Json& now, const Json& before, int64_t passed_us) {
  const bool same = before.text("sandbox.id") == now.text("sandbox.id");
  if (!now.has("network") || !before.has("network") || !same || passed_us <= 0) return std::nullopt;
  const auto carried = [](const Json& workspace) {
    return workspace.number("network.bytes_in") + workspace.number("network.bytes_out");
  };
  const auto bytes = static_cast<double>(std::max<int64_t>(0, carried(now) - carried(before)));
  return static_cast<uint64_t>(bytes * 1e6 / static_cast<double>(passed_us));
}

// Numbers have a fixed width, so that columns do not move.
std::string padded(const std::string& text, size_t width) {
  const size_t used = display_width(text);
  return used < width ? std::string(width - used, ' ') + text : text;
}

std::string percent_text(std::optional<double> percent) {
  if (!percent) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", *percent);
  return text;
}

std::string size_text(std::optional<uint64_t> bytes) { return bytes ? format_size(*bytes) : "-"; }

std::string line_of(std::string text, size_t width) {
  text = shorten(text, width);
  const size_t used = display_width(text);
  if (used < width) text.append(width - used, ' ');
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The keys, with the current order in brackets.
std::string keys_text(const TopScreen& screen) {
  const auto key = [&](TopOrder order, const std::string& text) {
    return order == screen.order ? "[" + text + "]  " : " " + text + "   ";
  };
  return "q quit   " + key(TopOrder::cpu, "c cpu") + key(TopOrder::memory, "m memory") +
         key(TopOrder::disk, "d disk") + key(TopOrder::name, "n name") +
         (screen.own ? "[o own]" : " o own ") + "   ↑↓ select";
}

std::string sums_text(const Json& now, const std::vector<TopRow>& rows) {
  double cpu = 0;
  uint64_t memory = 0, disk = 0;
  bool measured = rows.empty();
  for (const TopRow& row : rows) {
    measured = measured || row.disk_bytes;
    cpu += row.cpu_percent.value_or(0);
    memory += row.memory_bytes.value_or(0);
    disk += row.disk_bytes.value_or(0);
  }
  char text[64];
  std::snprintf(text, sizeof text, "cpu %.0f%% of %lld00%%", cpu,
                static_cast<long long>(now.number("cpus")));
  return std::string(text) + "   memory " + format_size(memory) + "   disk " +
         (measured ? format_size(disk) : "not measured yet") + ", " +
         format_size(static_cast<uint64_t>(now.number("space.free_bytes"))) + " free";
}

}  // namespace

std::vector<TopRow> top_rows(const Json& now, const Json& before, TopOrder order) {
  std::map<std::string, Json> old;
  for (const Json& workspace : before.items("workspaces")) old[workspace.text("id")] = workspace;
  const int64_t passed_us = now.number("boot_us") - before.number("boot_us");
  const int64_t now_ms = parse_utc(now.text("at")).value_or(0);
  std::vector<TopRow> rows;
  for (const Json& workspace : now.items("workspaces")) {
    TopRow row;
    row.id = workspace.text("id");
    row.name = workspace.text("name");
    row.owner = owner_text(workspace);
    row.state = state_of(workspace);
    row.execs = workspace.number("execs_running");
    row.cpu_percent = cpu_percent(workspace, old[row.id], passed_us);
    row.memory_bytes = size_of(workspace, "sandbox.memory_bytes");
    row.disk_bytes = size_of(workspace, "disk_bytes");
    row.memory_limit_bytes = static_cast<uint64_t>(workspace.number("limits.memory_bytes"));
    row.processes = workspace.number("sandbox.processes", -1);
    row.connections = workspace.number("network.connections", -1);
    row.network_rate = network_rate(workspace, old[row.id], passed_us);
    row.silent_ms = age_of(workspace, "last_output_at", now_ms);
    row.doing = doing_of(workspace);
    rows.push_back(std::move(row));
  }
  const auto before_in_order = [order](const TopRow& a, const TopRow& b) {
    if (order == TopOrder::cpu && a.cpu_percent != b.cpu_percent)
      return a.cpu_percent > b.cpu_percent;
    if (order == TopOrder::memory && a.memory_bytes != b.memory_bytes)
      return a.memory_bytes > b.memory_bytes;
    if (order == TopOrder::disk && a.disk_bytes != b.disk_bytes) return a.disk_bytes > b.disk_bytes;
    return a.name != b.name ? a.name < b.name : a.id < b.id;
  };
  std::sort(rows.begin(), rows.end(), before_in_order);
  return rows;
}

Table top_table(const std::vector<TopRow>& rows, bool wide) {
  std::vector<Column> columns{{"NAME", false, true}};
  if (wide) columns.emplace_back("OWNER");
  columns.insert(columns.end(), {{"STATE"}, {"EXECS", true}, {"CPU%", true}, {"MEM", true}});
  if (wide)
    columns.insert(columns.end(),
                   {{"LIMIT", true}, {"PROCS", true}, {"CONNS", true}, {"NET/S", true}});
  columns.insert(columns.end(), {{"DISK", true}, {"OUTPUT", true}, {"DOING", false, true}});
  Table table(std::move(columns));
  for (const TopRow& row : rows) {
    const bool ours = row.owner == "you" || wide;
    std::vector<Cell> cells{ours ? row.name : row.name + " (" + row.owner + ")"};
    if (wide) cells.emplace_back(row.owner);
    cells.insert(cells.end(), {{line_of(row.state, 8), colour_of(row.state)},
                               std::to_string(row.execs),
                               padded(percent_text(row.cpu_percent), 6),
                               padded(size_text(row.memory_bytes), 5)});
    if (wide) {
      cells.insert(cells.end(), {format_size(row.memory_limit_bytes),
                                 row.processes < 0 ? "-" : std::to_string(row.processes),
                                 row.connections < 0 ? "-" : std::to_string(row.connections),
                                 padded(size_text(row.network_rate), 5)});
    }
    cells.insert(cells.end(), {padded(size_text(row.disk_bytes), 5),
                               padded(row.silent_ms < 0 ? "-" : format_age(row.silent_ms), 6),
                               Cell(row.doing.empty() ? "-" : row.doing)});
    table.add(std::move(cells));
  }
  return table;
}

std::string top_counts(const std::vector<TopRow>& rows) {
  const auto count = [&rows](std::string_view state) {
    return std::count_if(rows.begin(), rows.end(),
                         [state](const TopRow& row) { return row.state == state; });
  };
  std::string text = count_of(static_cast<int64_t>(rows.size()), "workspace");
  text += ", " + std::to_string(count("running") + count("waiting")) + " running";
  const auto waiting = count("waiting");
  if (waiting == 1) text += ", 1 waits for input";
  if (waiting > 1) text += ", " + std::to_string(waiting) + " wait for input";
  return text;
}

std::string top_frame(const Json& now, const std::vector<TopRow>& rows, TopScreen& screen) {
  const auto width = static_cast<size_t>(std::max(screen.size.columns, 20));
  const auto height = static_cast<size_t>(std::max(screen.size.rows, 8));
  const auto chosen = std::find_if(rows.begin(), rows.end(),
                                   [&](const TopRow& row) { return row.id == screen.selected; });
  const size_t room = height - kAround;
  if (chosen != rows.end()) {
    const auto at = static_cast<size_t>(chosen - rows.begin());
    screen.first = std::clamp(screen.first, at < room ? 0 : at - room + 1, at);
  }
  screen.first = std::min(screen.first, rows.size() > room ? rows.size() - room : 0);

  const bool wide = screen.size.columns >= kWide;
  const auto lines = [&](bool colours) {
    return lines_of(top_table(rows, wide).render({.width = width, .colours = colours}));
  };
  // When even the shrunk columns are too wide, lines are cut, and colored lines cannot be cut.
  const bool narrow = screen.size.columns < kNarrow;
  const std::vector<std::string> plain = lines(false), shown = lines(screen.colours && !narrow);
  std::string title = "moorage top   " + top_counts(rows);
  const size_t used = display_width(title) + screen.clock.size();
  if (used < width) title.append(width - used, ' ').append(screen.clock);

  std::string out = "\x1b[H";
  // `code` colors the text; `looks` is its visible form. After a full line the cursor stays on the
  // last cell, which erasing the rest would erase.
  const auto put = [&](const std::string& text, std::string_view code, const std::string& looks) {
    out += std::string(code) + text + (code.empty() ? "" : "\x1b[0m");
    if (display_width(looks) < width) out += "\x1b[K";
  };
  const auto paint = [&](std::string text, std::string_view code) {
    text = shorten(text, width);
    put(text, screen.colours ? code : "", text);
    out += "\r\n";
  };
  paint(line_of(title, width), "\x1b[1m");
  if (screen.trouble.empty()) {
    paint(sums_text(now, rows), "");
  } else {
    paint(printable(screen.trouble), "\x1b[31m");
  }
  paint("", "");
  paint(line_of(plain.front(), width), "\x1b[7m");
  for (size_t i = 0; i < room; ++i) {
    const size_t row = screen.first + i;
    if (row >= rows.size()) {
      paint(
          rows.empty() && i == 1 ? "no workspaces yet; create one: moorage create --repo URL" : "",
          "");
    } else if (rows[row].id == screen.selected) {
      const std::string line = line_of(plain[row + 1], width);
      put(line, "\x1b[7m", line);
      out += "\r\n";
    } else if (narrow) {
      paint(plain[row + 1], "");
    } else {
      put(shown[row + 1], "", plain[row + 1]);
      out += "\r\n";
    }
  }
  const std::string keys = shorten(keys_text(screen), width);
  put(keys, screen.colours ? "\x1b[2m" : "", keys);
  return out;
}

}  // namespace moorage::cli
