#include "cli/output/table.h"

#include <catch2/catch.hpp>

#include "cli/output/text.h"

using namespace moorage::cli;

namespace {

Table sample() {
  Table table({{"NAME", false, true}, {"STATE"}, {"DISK", true}});
  table.add({"auth", {"running", Colour::green}, "412M"});
  table.add({"a-very-long-name-for-a-workspace", "stopped", "18M"});
  return table;
}

}  // namespace

TEST_CASE("columns line up, numbers to the right") {
  CHECK(sample().render({}) ==
        "NAME                              STATE    DISK\n"
        "auth                              running  412M\n"
        "a-very-long-name-for-a-workspace  stopped   18M\n");
}

TEST_CASE("the shrinking column is cut only on a narrow terminal") {
  const std::string text = sample().render({.width = 30});
  CHECK(text ==
        "NAME             STATE    DISK\n"
        "auth             running  412M\n"
        "a-very-long-na…  stopped   18M\n");
}

TEST_CASE("the last cell of a short row spans the rest") {
  Table table({{"NAME"}, {"STATE"}, {"DOING"}, {"DISK"}});
  table.add({"a", "running", "make", "1M"});
  table.add({"lost-1", "CHECK", "2 files differ: moorage show lost-1"});
  CHECK(table.render({}) ==
        "NAME    STATE    DOING  DISK\n"
        "a       running  make   1M\n"
        "lost-1  CHECK    2 files differ: moorage show lost-1\n");
}

TEST_CASE("colors do not disturb the columns and appear only on request") {
  const std::string text = sample().render({.width = 0, .colours = true});
  CHECK(text.find("\x1b[32mrunning\x1b[0m  412M") != std::string::npos);
  CHECK(sample().render({}).find('\x1b') == std::string::npos);
}

TEST_CASE("cells are escaped") {
  Table table({"NAME"});
  table.add({"a\x1b[2Jb\nc"});
  CHECK(table.render({}) == "NAME\na\\x1b[2Jb\\nc\n");
}

TEST_CASE("a long label line wraps under its text") {
  CHECK(label_lines("ok", "one two three four five", 30) ==
        " ok       one two three four\n          five\n");
  CHECK(label_lines("ok", "short", 30) == label_line("ok", "short"));
  CHECK(label_lines("ok", "", 30) == label_line("ok", ""));
  CHECK(label_lines("ok", "a-word-that-is-longer-than-a-line b", 30) ==
        " ok       a-word-that-is-longer-than-a-line\n          b\n");
}

TEST_CASE("label lines start their text at one column") {
  CHECK(label_line("ready", "auth") == " ready    auth\n");
  CHECK(label_line("base", "main", 11) == " base      main\n");
  CHECK(label_line("a-long-label", "x") == " a-long-label x\n");
}
