#include "base/log.h"

#include <sys/wait.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <random>
#include <thread>

#include "base/ids.h"
#include "base/os/files.h"
#include "temporary_directory.h"

using namespace moorage;
using base::escape_for_line;
using base::escape_for_message;
using base::LogLevel;

namespace {

// Logs into a file, then back to standard error at the end.
class LogFile {
 public:
  explicit LogFile(bool json, LogLevel level = LogLevel::info) {
    base::set_up_log({level, json, directory_ / "log"});
  }
  ~LogFile() { base::set_up_log({}); }
  std::vector<std::string> lines() const {
    std::vector<std::string> result;
    std::string text = base::read_file(directory_ / "log");
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      REQUIRE(end != std::string::npos);
      result.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    return result;
  }

 private:
  test::TemporaryDirectory directory_;
};

// Created before the log, so destroyed after everything the log created.
struct LastWord {
  std::string file;
  ~LastWord() {
    if (!file.empty()) base::log(LogLevel::error, "last.word");
  }
} last_word;

}  // namespace

TEST_CASE("the log works until the process has ended") {
  test::TemporaryDirectory directory;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    last_word.file = directory / "log";
    base::set_up_log({LogLevel::info, false, last_word.file});
    exit(0);  // runs destructors of statics, but not of this test
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(base::read_file(directory / "log").ends_with("error last.word\n"));
}

TEST_CASE("hostile text stays on its line and differs from honest text") {
  CHECK(escape_for_line("plain caf\u00e9 \u6f22 \U0001f600") ==
        "plain caf\u00e9 \u6f22 \U0001f600");
  CHECK(escape_for_line("a\nb\rc\td") == "a\\nb\\rc\\td");
  CHECK(escape_for_line("\"\\n") == "\\\"\\\\n");
  CHECK(escape_for_line("\x1b[2J\x7f") == "\\x1b[2J\\x7f");
  CHECK(escape_for_line(std::string("\0", 1)) == "\\x00");
  CHECK(escape_for_line("\u0085\u009b") == "\\xc2\\x85\\xc2\\x9b");  // C1
  CHECK(escape_for_line("\u00a0") == "\u00a0");                      // not C1
  CHECK(escape_for_line("\u2028\u202e") == "\\xe2\\x80\\xa8\\xe2\\x80\\xae");
  CHECK(escape_for_line("\xff\xc3(") == "\\xff\\xc3(");
  CHECK(escape_for_line("\xc0\xaf") == "\\xc0\\xaf");                    // overlong
  CHECK(escape_for_line("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // surrogate
  CHECK(escape_for_line("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // beyond the last
  CHECK(escape_for_line("\xe2\x82") == "\\xe2\\x82");                    // cut
  CHECK(escape_for_line("").empty());
}

TEST_CASE("a message keeps its quotes, and is not escaped twice") {
  const std::string message = escape_for_message("no file \"a\\b\"\n\x1b");
  CHECK(message == "no file \"a\\b\"\\n\\x1b");
  CHECK(escape_for_message(message) == message);
}

TEST_CASE("random bytes never leave a control character or a bare quote") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string text(random() % 40, '\0');
    for (char& c : text) c = static_cast<char>(random());
    const std::string line = escape_for_line(text);
    for (size_t i = 0; i < line.size(); ++i) {
      const auto byte = static_cast<unsigned char>(line[i]);
      REQUIRE(byte >= 0x20);
      REQUIRE(byte != 0x7f);
      if (line[i] == '"') REQUIRE((i > 0 && line[i - 1] == '\\'));
    }
  }
}

TEST_CASE("a line has time, level, event and fields") {
  LogFile log(false);
  base::log(LogLevel::info, "exec.started",
            {{"ws", base::WorkspaceId{3}}, {"pid", 812}, {"argv", "echo x=1"}, {"empty", ""}});
  const auto lines = log.lines();
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].substr(10, 1) == "T");
  CHECK(lines[0].substr(24) == " info exec.started ws=ws_3 pid=812 argv=\"echo x=1\" empty=\"\"");
}

TEST_CASE("a value cannot forge a line or a field") {
  LogFile log(false);
  base::log(LogLevel::error, "x", {{"out", "a\n2026-11-21T00:00:00.000Z info forged"}});
  base::log(LogLevel::error, "x", {{"out", "a\" uid=0 y=\""}});
  const auto lines = log.lines();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].ends_with(" error x out=\"a\\n2026-11-21T00:00:00.000Z info forged\""));
  CHECK(lines[1].ends_with(" error x out=\"a\\\" uid=0 y=\\\"\""));
}

TEST_CASE("JSON lines parse, whatever the value") {
  LogFile log(true);
  const std::string hostile = "a\"b\\c\n\x01\xff\u0085 \\xff";
  base::log(LogLevel::warning, "exec.odd", {{"out", hostile}, {"n", 5}});
  const auto lines = log.lines();
  REQUIRE(lines.size() == 1);
  const auto object = boost::json::parse(lines[0]).as_object();
  CHECK(object.at("level") == "warning");
  CHECK(object.at("event") == "exec.odd");
  CHECK(object.at("out") == "a\"b\\c\n\\x01\\xff\\xc2\\x85 \\xff");
  CHECK(object.at("n") == "5");
  CHECK(object.contains("at"));
}

TEST_CASE("lower levels are omitted and long values are cut") {
  LogFile log(false, LogLevel::warning);
  base::log(LogLevel::info, "quiet");
  base::log(LogLevel::warning, "long", {{"v", std::string(100'000, 'v')}});
  const auto lines = log.lines();
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].ends_with("vvv..."));
  CHECK(lines[0].size() < 4300);
}

TEST_CASE("lines of many threads do not mix") {
  LogFile log(false);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int j = 0; j < 200; ++j) base::log(LogLevel::info, "e", {{"v", std::string(500, 'v')}});
    });
  }
  for (auto& thread : threads) thread.join();
  const auto lines = log.lines();
  CHECK(lines.size() == 800);
  for (const auto& line : lines) CHECK(line.size() == lines[0].size());
}

TEST_CASE("a log that cannot be opened is an error") {
  CHECK(test::code_thrown_by([] {
          base::set_up_log({LogLevel::info, false, "/proc/none/log"});
        }) == "io");
}
