"""cmake/unity.py: sources compile together only where that is the same program. Each test has two or more sources."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPEN, CLOSE = "namespace moorage::shop {\nnamespace {\n", "}  // namespace\n}  // namespace moorage::shop\n"
FORMS = ("int count() { return 1; }", "constexpr int count = 1;", "struct count {\n};", "enum class count { one };", "using count = int;",
         "template <typename T>\nT count(T a) {\n  return a;\n}", "std::map<int, int> count{};", "constexpr struct {\n  int number;\n} count[] = {{1}};",
         "class count final : public Base {\n};", "std::map<int, std::vector<std::string>>\n    count(int many) {\n}",
         "decltype(Row::id) count(Row r) {\n}", "const std::vector<int>& count(const Row& row) {\n}", "int count[3];",
         "[[noreturn]] void count(int many) {\n}", "struct alignas(Row) count {\n};")
# Has the private name also as a member, so that no macro can change it.
MIXED = "int count(long) { return 1; }\nint used(Row row) { return row.count; }\n"


def unnamed(text):
    return OPEN + text + CLOSE


class Unity(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def join(self, **files):
        """Lists of files that compile together, the unit first; `h_` in a name stands for a header."""
        for file in self.place.glob("*.*"):
            file.unlink()
        for name, text in files.items():
            (self.place / (f"{name[2:]}.h" if name.startswith("h_") else f"{name}.cc")).write_text(text)
        done = subprocess.run([sys.executable, ROOT / "cmake/unity.py", self.place / "units", self.place, *sorted(self.place.glob("*.cc"))],
                              capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return [line.split(";") for line in done.stdout.split()]

    def assert_together(self, **files):
        units = self.join(**files)
        self.assertEqual([[pathlib.Path(source).stem for source in unit[1:]] for unit in units], [["a", "b"]])
        return pathlib.Path(units[0][0]).read_text()

    def assert_apart(self, **files):
        self.assertEqual(self.join(**files), [])

    def test_two_private_things_of_one_name_get_names_of_their_own(self):
        for declared in FORMS:
            with self.subTest(declared):
                text = self.assert_together(a=unnamed(declared + "\n"), b=unnamed("long count(char) { return 1; }\n"))
                for line in ("#define count count_0", "#define count count_1"):
                    self.assertEqual(text.count(line), 1, text)
                self.assertEqual(text.count("#undef count"), 2, text)

    def test_static_names_and_crash_points_are_private(self):
        for declared in ("static int count(int);", "static int count = 1;", 'MOORAGE_CRASH_POINT(count, "shop.count");'):
            with self.subTest(declared):
                self.assertIn("#define count count_0", self.assert_together(a=declared + "\n", b=unnamed("int count = 1;\n")))

    def test_no_macro_changes_a_member_or_a_name_that_becomes_text(self):
        for use in ("row.count", "row->count()", "row\n    .count()", "Row::count()", "Row{.count = 1}"):
            with self.subTest(use):
                self.assert_apart(a=unnamed(f"int count() {{ return 1; }}\nint all(Row row) {{ return {use}; }}\n"), b=unnamed("int count = 1;\n"))
        self.assert_apart(a=unnamed("int count = 1;\n") + "BOOST_DESCRIBE_STRUCT(Row, (), (count))\n", b="int total() { return count; }\n")

    def test_a_private_name_that_means_something_else_to_the_other_is_apart(self):
        self.assert_apart(a=unnamed(MIXED), b="int total() { return count(1); }\n")
        self.assert_apart(a="int total() { return count(1); }\n", b=unnamed(MIXED))

    def test_members_qualified_names_text_and_comments_mean_nothing(self):
        for use in ("row.count()", "row->count()", "std::count(row)", '"count"', "'count'", "1 /* count */", "1 // count\n", 'R"(\ncount)"'):
            with self.subTest(use):
                self.assert_together(a=unnamed(MIXED), b=f"int total() {{ return {use}; }}\n")

    def test_the_definition_of_a_private_classs_member_declares_nothing(self):
        text = self.assert_together(a=unnamed("struct Row {\n  int count();\n};\nint Row::count() {\n  return 1;\n}\n"), b="int total();\n")
        self.assertNotIn("define count", text)

    def test_what_a_header_of_one_alone_declares_counts(self):
        other, private = "int total() { return 2; }\n", unnamed(MIXED)
        self.assert_apart(a=private, b='#include "rows.h"\n' + other, h_rows="int count(char);\n")
        self.assert_apart(a=private, b='#include "more.h"\n' + other, h_more='#include "rows.h"\n', h_rows="int count(char);\n")
        # With that header the first compiles already; and a member is not in the way.
        self.assert_together(a='#include "rows.h"\n' + private, b='#include "rows.h"\n' + other, h_rows="int count(char);\n")
        self.assert_together(a=private, b='#include "rows.h"\n' + other, h_rows="struct Other {\n  int count;\n};\n")

    def test_all_headers_come_before_the_first_macro(self):
        text = self.assert_together(a='#include "rows.h"\n#include <list>\n' + unnamed("int list = 1;\n"), b="#include <map>\nint total();\n", h_rows="")
        before = text[:text.index("#define")]
        for include in ('"rows.h"', "<list>", "<map>"):
            self.assertIn(f"#include {include}\n", before)

    def test_one_alias_can_be_in_both(self):
        use = "json::value parse();\nboost::json::value two();\n"
        self.assert_together(a="namespace json = boost::json;\n" + use, b="namespace json = boost::json;\n" + use)
        self.assert_apart(a="namespace json = boost::json;\n" + use, b="namespace json = other::json;\n" + use)
        self.assert_apart(a="namespace json = boost::json;\n" + use, b=use)
        self.assert_together(a="using std::chrono::seconds;\nseconds one();\n", b="using std::chrono::seconds;\nseconds two();\n")
        self.assert_apart(a="using std::chrono::seconds;\nseconds one();\n", b="int two(int seconds);\n")

    def test_what_reaches_further_compiles_alone(self):
        for text in ("#define count 1\n", "#undef count\n", "using namespace std::chrono_literals;\n", "using enum Kind;\n",
                     unnamed("enum Kind { count };\n"), unnamed("bool operator==(const Row& a, const Row& b) {\n}\n")):
            with self.subTest(text):
                self.assert_apart(a=text, b="int total();\n")

    def test_an_operator_of_a_class_does_not_reach_further(self):
        self.assert_together(a="Row& Row::operator=(Row&& other) {\n}\n", b="int total();\n")

    def test_a_unit_is_not_too_large(self):
        self.assert_apart(a="int a;\n" * 3000, b="int b;\n" * 3000)

    def test_another_form_than_clang_formats_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "a.cc: an unnamed namespace is not as clang-format writes it"):
            self.join(a="namespace moorage::shop { namespace {\nint count;\n}}\n", b="int total();\n")

    def test_a_unit_that_is_the_same_is_not_written_again(self):
        sources = {"a": unnamed("int count = 1;\n"), "b": "int total();\n"}
        self.assert_together(**sources)
        unit = self.place / "units/unit_0.cc"
        os.utime(unit, (1, 1))
        self.assert_together(**sources)
        self.assertEqual(unit.stat().st_mtime, 1)

    def test_the_program_of_a_unit_prints_what_the_sources_program_prints(self):
        source = '#include "shop.h"\n' + OPEN + "int count(long) { return %d; }\nconstexpr int kMost = %d;\n}  // namespace\n" \
            "int %s() { return 100 * count('x') + kMost; }\n}  // namespace moorage::shop\n"
        units = self.join(a=source % (1, 2, "first"), b=source % (3, 4, "second"), h_shop="#pragma once\nnamespace moorage::shop {\nint first();\nint second();\n}\n",
                          main='#include "shop.h"\n#include <cstdio>\nint main() {\n  std::printf("%d %d", moorage::shop::first(), moorage::shop::second());\n}\n')
        self.assertEqual(len(units[0]), 4)
        for name, sources in (("apart", units[0][1:]), ("together", units[0][:1])):
            subprocess.run(["c++", "-std=c++20", "-I", self.place, "-o", self.place / name, *sources], check=True)
            self.assertEqual(subprocess.run([self.place / name], capture_output=True, text=True, check=True).stdout, "102 304")


if __name__ == "__main__":
    unittest.main()
