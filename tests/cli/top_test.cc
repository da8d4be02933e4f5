#include <catch2/catch.hpp>
#include <regex>
#include <sstream>

#include "cli/output/text.h"
#include "cli/views/top_view.h"

using namespace moorage::cli;

namespace {

std::string workspace(int number, const std::string& name, int64_t cpu_us,
                      const std::string& more = R"("execs_running":0,"waiting":[])") {
  const std::string id = std::to_string(number);
  return R"({"id":"ws_)" + id + R"(","name":")" + name + R"(","owner":4242,"state":"ready",)" +
         R"("limits":{"memory_bytes":4294967296},"disk_bytes":)" + std::to_string(number << 20) +
         R"(,"sandbox":{"id":"sb_)" + id + R"(","state":"running","memory_bytes":)" +
         std::to_string((100 - number) << 20) + R"(,"processes":3,"cpu_us":)" +
         std::to_string(cpu_us) + "}," + more + "}";
}

Json answer(int64_t boot_us, const std::string& workspaces) {
  return Json::parse(R"({"at":"2026-11-22T12:00:10.000Z","cpus":2,"boot_us":)" +
                     std::to_string(boot_us) + R"(,"space":{"free_bytes":1073741824},)" +
                     R"("workspaces":[)" + workspaces + "]}");
}

std::vector<std::string> names(const std::vector<TopRow>& rows) {
  std::vector<std::string> found;
  for (const auto& row : rows) found.push_back(row.name);
  return found;
}

// What a terminal would show: lines without the sequences that draw them.
std::vector<std::string> shown(const std::string& frame) {
  const std::string text = std::regex_replace(frame, std::regex("\x1b\\[[0-9;?]*[a-zA-Z]"), "");
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end; (end = text.find("\r\n", begin)) != std::string::npos; begin = end + 2)
    lines.push_back(text.substr(begin, end - begin));
  lines.push_back(text.substr(begin));
  return lines;
}

std::vector<TopRow> many_rows(int count) {
  std::string all;
  for (int i = 1; i <= count; ++i)
    all += (i > 1 ? "," : "") + workspace(i, "w" + std::to_string(100 + i), 0);
  return top_rows(answer(1, all), {}, TopOrder::name);
}

}  // namespace

TEST_CASE("the CPU share is measured between two samples of the same sandbox") {
  const Json before = answer(1'000'000, workspace(1, "a", 500'000) + "," + workspace(2, "b", 7));
  std::string now = workspace(1, "a", 1'500'000) + "," + workspace(2, "b", 9'000'007);
  now.replace(now.find("sb_2"), 4, "sb_9");  // it was restarted
  const auto rows = top_rows(answer(3'000'000, now), before, TopOrder::cpu);
  REQUIRE(names(rows) == std::vector<std::string>{"a", "b"});
  CHECK(rows[0].cpu_percent == 50.0);
  CHECK_FALSE(rows[1].cpu_percent);
  CHECK_FALSE(top_rows(answer(3'000'000, now), {}, TopOrder::cpu)[0].cpu_percent);
}

TEST_CASE("each order puts the largest first, and names from a to z") {
  const Json before = answer(0, workspace(1, "b", 0) + "," + workspace(2, "a", 0));
  const Json now = answer(1'000'000, workspace(1, "b", 10) + "," + workspace(2, "a", 900'000));
  using Names = std::vector<std::string>;
  CHECK(names(top_rows(now, before, TopOrder::cpu)) == Names{"a", "b"});
  CHECK(names(top_rows(now, before, TopOrder::memory)) == Names{"b", "a"});
  CHECK(names(top_rows(now, before, TopOrder::disk)) == Names{"a", "b"});
  CHECK(names(top_rows(now, before, TopOrder::name)) == Names{"a", "b"});
}

TEST_CASE("a command that waits for input is shown") {
  const std::string more = R"("execs_running":2,"last_output_at":"2026-11-22T12:00:07.000Z",)"
                           R"("doing":{"exec":"ex_9","argv":["sleep","9"]},)"
                           R"("waiting":[{"exec":"ex_8","argv":["python3","ask.py"]}])";
  const auto rows = top_rows(answer(1, workspace(1, "a", 0, more)), {}, TopOrder::cpu);
  CHECK(rows[0].state == "waiting");
  CHECK(rows[0].doing == "ex_8 python3 ask.py");
  CHECK(rows[0].silent_ms == 3000);
  CHECK(top_counts(rows) == "1 workspace, 1 running, 1 waits for input");
}

TEST_CASE("a blocked command is shown with its host, and the network of a sandbox") {
  const std::string more = R"("doing":{"exec":"ex_9","argv":["npm","ci"]},)"
                           R"("blocked":{"host":"registry.npmjs.org","exec":"ex_9"},)";
  const std::string used = R"("network":{"connections":3,"bytes_in":)";
  const Json before = answer(0, workspace(1, "a", 0, more + used + R"(1000,"bytes_out":0})"));
  const Json now =
      answer(2'000'000, workspace(1, "a", 0, more + used + R"(4001000,"bytes_out":4000})"));
  const auto rows = top_rows(now, before, TopOrder::cpu);
  CHECK(rows[0].doing == "blocked: registry.npmjs.org (ex_9)");
  CHECK(rows[0].connections == 3);
  CHECK(rows[0].network_rate == 2'002'000);
  CHECK_FALSE(top_rows(now, {}, TopOrder::cpu)[0].network_rate);
}

TEST_CASE("a frame exactly fills its window, whatever the names are") {
  const std::string hostile = R"(\u001b[2J\u202ea\r\n\u0007)";
  const std::string wide(300, 'w');
  const Json now =
      answer(1, workspace(1, hostile, 0) + "," + workspace(2, wide, 0) + "," +
                    workspace(3, "漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字", 0));
  const auto rows = top_rows(now, {}, TopOrder::name);
  for (const bool colours : {false, true}) {
    for (const WindowSize size : {WindowSize{80, 24}, WindowSize{200, 50}, WindowSize{40, 10}}) {
      TopScreen screen;
      screen.size = size;
      screen.colours = colours;
      screen.clock = "12:03:41";
      const std::string frame = top_frame(now, rows, screen);
      const auto lines = shown(frame);
      CAPTURE(size.columns, size.rows, frame);
      CHECK(lines.size() == static_cast<size_t>(size.rows));
      for (const auto& line : lines) {
        CHECK(display_width(line) <= static_cast<size_t>(size.columns));
        CHECK(line.find_first_of("\x1b\r\n\x07") == std::string::npos);
      }
      CHECK(frame.find("\u202e") == std::string::npos);
      CHECK(frame.find("\x1b[2J") == std::string::npos);
      if (!colours) CHECK(frame.find("\x1b[3") == std::string::npos);
    }
  }
}

TEST_CASE("the selected row is always on the screen") {
  const auto rows = many_rows(60);
  TopScreen screen;
  screen.size = {80, 24};
  const auto has = [&](const std::string& name) {
    const auto lines = shown(top_frame(answer(1, ""), rows, screen));
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return line.starts_with(name + " "); });
  };
  CHECK(has("w101"));
  CHECK_FALSE(has("w160"));
  screen.selected = "ws_60";
  CHECK(has("w160"));
  CHECK_FALSE(has("w101"));
  screen.selected = "ws_1";
  CHECK(has("w101"));
  screen.selected = "ws_60";
  CHECK(has("w160"));
  screen.size = {80, 80};
  CHECK(has("w101"));  // there is room for all
}

TEST_CASE("columns stay in place while numbers change") {
  const auto head = [](int64_t cpu_us) {
    const Json before = answer(0, workspace(1, "a", 0));
    const Json now = answer(1'000'000, workspace(1, "a", cpu_us));
    TopScreen screen;
    screen.size = {80, 24};
    return shown(top_frame(now, top_rows(now, before, TopOrder::cpu), screen)).at(3);
  };
  CHECK(head(1) == head(1'999'000));
}
