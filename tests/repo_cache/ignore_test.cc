#include "repo_cache/formats/ignore.h"

#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <random>

#include "git_fixture.h"

using namespace moorage::repo_cache;
using namespace moorage::repo_cache::test;

namespace {

struct Case {
  std::map<std::string, std::string> ignore_files;  // directory -> bytes
  std::string exclude;
  std::vector<std::string> files;  // regular files; directories follow from them
};

// Compares every file and directory of the case with `git check-ignore`.
void compare_with_git(const Case& scenario, const std::string& where) {
  std::filesystem::remove_all(where);
  git("/", {"init", "-q", where});
  for (const auto& file : scenario.files) put_file(where + "/" + file, "x");
  IgnoreRules rules;
  for (const auto& [directory, bytes] : scenario.ignore_files) {
    put_file(where + "/" + (directory.empty() ? "" : directory + "/") + ".gitignore", bytes);
    rules.add(directory, bytes);
  }
  put_file(where + "/.git/info/exclude", scenario.exclude);
  rules.set_exclude(scenario.exclude);
  std::string input;
  std::map<std::string, bool> paths;  // -> is a directory
  for (const auto& file : scenario.files) {
    paths[file] = false;
    for (size_t slash = file.find('/'); slash != std::string::npos;
         slash = file.find('/', slash + 1)) {
      paths[file.substr(0, slash)] = true;
    }
  }
  for (const auto& [path, is_directory] : paths) input += path + '\0';
  const std::string output = [&] {
    const std::string list = where + "/.git/list";
    put_file(list, input);
    // Exit status 1 means "none": the shell makes it 0.
    return git(
        where,
        {"-c", "alias.ask=!git check-ignore --no-index -z --stdin < .git/list || true", "ask"});
  }();
  std::map<std::string, bool> ignored;
  for (size_t at = 0; at < output.size();) {
    const size_t end = output.find('\0', at);
    ignored[output.substr(at, end - at)] = true;
    at = end + 1;
  }
  for (const auto& [path, is_directory] : paths) {
    std::string shown;
    for (const auto& [directory, bytes] : scenario.ignore_files)
      shown += "[" + directory + "]\n" + bytes;
    INFO("path " << path << " with\n" << shown << "[exclude]\n" << scenario.exclude);
    CHECK(rules.matches(path, is_directory) == ignored.count(path));
  }
}

}  // namespace

TEST_CASE("ignore rules match like git for common patterns") {
  const TemporaryDirectory directory;
  const std::vector<std::string> files = {
      "a.o",           "b.c",          "build/x.o", "build/keep.c",  "src/build/y",
      "src/a/b/c.txt", "src/a/d.log",  "doc/x.txt", "doc/sub/x.txt", "foo/bar",
      "foobar/x",      "#hash",        "!bang",     "space ",        "trailing\\",
      "deep/a/b/c/d",  "a/b/c",        "abc/x",     "[x]",           "x/y/z/w",
      "log/1.log",     "log/keep.log", "nl\nname",  "\xff\xfe",      "very/deep/build/z"};
  const std::vector<std::map<std::string, std::string>> rules = {
      {{"", "*.o\n"}},
      {{"", "build/\n!build/keep.c\n"}},
      {{"", "/build\n"}},
      {{"", "build\n"}, {"src", "!build\n"}},
      {{"", "src/**/c.txt\n**/d.log\n"}},
      {{"", "doc/*.txt\n"}},
      {{"", "foo/\n"}},
      {{"", "\\#hash\n\\!bang\nspace\\ \n"}},
      {{"", "space \n"}},
      {{"", "\xef\xbb\xbf*.o\r\nb.c\r\n"}},
      {{"", "deep/**\n!deep/a/\n"}},
      {{"", "a/**/c\n"}},
      {{"", "a**c\n"}},
      {{"", "foo**\n/x/y**\n"}},
      {{"", "[ab].?\n\\[x\\]\n"}},
      {{"", "[!a-c]bc\n[[:alpha:]].o\n"}},
      {{"", "*\n!*/\n!*.c\n"}},
      {{"", "/*\n!/src\n/src/*\n!/src/a\n"}},
      {{"", "log/*\n!log/keep.log\n"}},
      {{"", "[\n[a\n]\n[]x]\n[^]]\n\\\n"}},
      {{"", "\n\n# comment\n   \n*.log"}},
      {{"src/a", "*.txt\n/d.log\n"}, {"src", "b/\n"}},
      {{"", "**\n!**/\n"}},
      {{"", "/\n//\n!\n!/\n"}},
      {{"", "nl*\n\xff*\n"}},
      {{"", "very/*/build/\n**/build\n"}},
  };
  for (const auto& one : rules) {
    compare_with_git({one, "", files}, directory / "repo");
    compare_with_git({one, "!*.c\nsrc/\n", files}, directory / "repo");
  }
}

TEST_CASE("ignore rules match like git for random patterns") {
  const TemporaryDirectory directory;
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto pick = [&](const auto& list) { return list[random() % list.size()]; };
  const std::vector<std::string> names = {"a", "b",     "ab", "abc", "c.o", "d.c",
                                          "x", "build", "A",  "-",   "]"};
  const std::vector<std::string> pieces = {
      "a",   "b",  "*",    "?",   "**",    "/",       "/**/", "[ab]", "[!a]",
      "abc", ".o", "*.c",  "\\a", "build", "[a-c]",   "[]]",  "[^-]", "[[:alpha:]]",
      "x",   "-",  "[a-]", "\\*", "[",     "[[:no:]", "[\\]]"};
  for (int round = 0; round < 40; ++round) {
    Case scenario;
    for (int i = 0; i < 14; ++i) {
      std::string path = pick(names);
      for (unsigned depth = random() % 4; depth > 0; --depth)
        path = "d" + std::string(pick(names)) + "/" + path;
      scenario.files.push_back(path);
    }
    const auto rule_file = [&] {
      std::string text;
      for (int line = 0; line < 4; ++line) {
        if (random() % 5 == 0) text += "!";
        if (random() % 4 == 0) text += "/";
        if (random() % 4 == 0) text += "d";
        for (unsigned n = 1 + random() % 4; n > 0; --n) text += pick(pieces);
        if (random() % 5 == 0) text += "/";
        text += "\n";
      }
      return text;
    };
    scenario.ignore_files[""] = rule_file();
    const std::string& some = scenario.files[random() % scenario.files.size()];
    if (const size_t slash = some.rfind('/'); slash != std::string::npos) {
      scenario.ignore_files[some.substr(0, slash)] = rule_file();
    }
    if (round % 2) scenario.exclude = rule_file();
    compare_with_git(scenario, directory / "repo");
  }
}

TEST_CASE("a pattern designed to be slow is fast") {
  IgnoreRules rules;
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  rules.add("", pattern + "b\n**/" + pattern + "/**/" + pattern + "b\n");
  const auto begin = std::chrono::steady_clock::now();
  CHECK_FALSE(rules.matches(std::string(250, 'a'), false));
  std::string deep;
  for (int i = 0; i < 300; ++i) deep += "aaaaaaaaaa/";
  CHECK_FALSE(rules.matches(deep + "a", false));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}

TEST_CASE("a pattern of a megabyte allocates no memory per compared path") {
  IgnoreRules rules;
  std::string pattern;
  while (pattern.size() < (1 << 20)) pattern += "*a?";
  rules.add("", "x/" + pattern + "\n" + pattern + "\n*.o\n");
  std::string path = "x";
  while (path.size() < 3900) path += "/" + std::string(200, 'a');
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  CHECK_FALSE(rules.matches(path, false));
  CHECK(rules.matches("x/one.o", false));
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  CHECK(after.ru_maxrss - before.ru_maxrss < 64 << 10);  // in KiB
}

TEST_CASE("slow patterns stop at the caller's deadline") {
  IgnoreRules rules;
  std::string line;
  for (int i = 0; i < 100; ++i) line += "*a?";
  std::string file;
  for (int i = 0; i < 3000; ++i) file += line + "b\n";
  rules.add("", file);
  std::string path = "x";
  while (path.size() < 3900) path += "/" + std::string(200, 'a');
  const auto begin = std::chrono::steady_clock::now();
  rules.set_deadline(begin + std::chrono::milliseconds(200));
  CHECK_FALSE(rules.matches(path, false));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}
