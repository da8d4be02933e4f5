#include "repo_cache/tree_diff.h"

#include <fcntl.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "base/os/files.h"
#include "git_fixture.h"

using namespace moorage;
using namespace moorage::repo_cache;
using namespace moorage::repo_cache::test;

namespace fs = std::filesystem;

namespace {

struct Differ : CachedUpstream {
  CommitTree open(const std::string& commit) {
    refresh();
    return CommitTree(cache, "repo_1", commit);
  }

  // Applies the patch to a fresh checkout of `commit` and compares it with the upstream's worktree.
  void expect_applies(const std::string& patch, const std::string& commit) {
    const std::string place = directory / "applied";
    fs::remove_all(place);
    git(directory.path(), {"clone", "-q", upstream.path(), place});
    git(place, {"checkout", "-q", "--detach", commit});
    INFO(patch);
    if (!patch.empty()) git(place, {"apply", "--binary", "--index", "-"}, patch);
    CHECK(snapshot(place) == snapshot(upstream.path()));
  }
};

Change put(const std::string& path, const std::string& bytes, uint32_t mode = kModeFile) {
  return {path, false, mode, [bytes]() -> Content { return bytes; }};
}
Change put_fd(const std::string& path, const std::string& file) {
  return {path, false, kModeFile, [file]() -> Content { return base::open_file(file, O_RDONLY); }};
}
Change gone(const std::string& path) { return {path, true, 0, {}}; }

std::string shown(const std::vector<DiffStat>& stats) {
  std::string text;
  for (const auto& stat : stats) {
    text += stat.change + " " + stat.path + " +" + std::to_string(stat.added) + " -" +
            std::to_string(stat.removed) + (stat.binary ? " binary" : "") + "\n";
  }
  return text;
}

// "too_large large 2000", by path.
std::string lacks(const Patch& patch) {
  std::string text;
  for (const auto& file : patch.left_out)
    text += file.why + " " + file.path + " " + std::to_string(file.bytes) + "\n";
  return text;
}

}  // namespace

TEST_CASE("a patch of every kind of change applies") {
  Differ world;
  const std::string binary("\0\1\2\3\xff binary\0", 14);
  const std::string base = world.upstream.commit({{"text", "a\nb\nc\n"},
                                                  {"no-newline", "x"},
                                                  {"binary", binary},
                                                  {"mode", "#!/bin/sh\n"},
                                                  {"gone", "x\n"},
                                                  {"dir/a", "a\n"},
                                                  {"dir/b", "b\n"},
                                                  {"file-to-dir", "f\n"},
                                                  {"file-to-link", "f\n"},
                                                  {"odd \"name\"\n\xff", "o\n"}});
  const std::string& root = world.upstream.path();
  for (const char* name : {"gone", "dir", "file-to-dir", "file-to-link"})
    fs::remove_all(root + "/" + name);
  const std::string other("\0other\xfe", 7);
  put_file(root + "/text", "a\nB\nc\nd\n");
  put_file(root + "/no-newline", "y");
  put_file(root + "/binary", binary + binary);
  put_file(root + "/mode", "#!/bin/sh\n", 0755);
  put_file(root + "/dir/b", "b\n");
  put_file(root + "/file-to-dir/below", "n\n");
  fs::create_symlink("text", root + "/file-to-link");
  put_file(root + "/odd \"name\"\n\xff", "odd\n");
  put_file(root + "/new/empty", "");
  put_file(root + "/new/binary", other);
  put_file(root + "/new/run", "x\n", 0755);
  put_file(root + "/t\tab", "x\n");
  const CommitTree tree = world.open(base);
  const auto changes = [&] {
    std::vector<Change> list;
    list.push_back(put("text", "a\nB\nc\nd\n"));
    list.push_back(put("no-newline", "y"));
    list.push_back(put_fd("binary", root + "/binary"));
    list.push_back(put("mode", "#!/bin/sh\n", kModeExecutable));
    list.push_back(gone("gone"));
    list.push_back(gone("dir"));
    list.push_back(put("dir/b", "b\n"));
    list.push_back(put("file-to-dir/below", "n\n"));
    list.push_back(put("file-to-link", "text", kModeSymlink));
    list.push_back(put("odd \"name\"\n\xff", "odd\n"));
    list.push_back(put("new/empty", ""));
    list.push_back(put("new/binary", other));
    list.push_back(put("new/run", "x\n", kModeExecutable));
    list.push_back(put("t\tab", "x\n"));
    return list;
  };
  world.expect_applies(tree.patch(changes()).text, base);
  CHECK(shown(tree.stat(changes())) ==
        "modified binary +0 -0 binary\ndeleted dir/a +0 -1\ndeleted file-to-dir +0 -1\nadded "
        "file-to-dir/below +1 -0\n"
        "type file-to-link +1 -1\ndeleted gone +0 -1\nmode mode +0 -0\nadded new/binary +0 -0 "
        "binary\n"
        "added new/empty +0 -0\nadded new/run +1 -0\nmodified no-newline +1 -1\nmodified odd "
        "\"name\"\n\xff +1 -1\n"
        "added t\tab +1 -0\nmodified text +2 -1\n");
  CHECK(tree.patch({}).text.empty());
  CHECK(tree.patch({[] {
              std::vector<Change> same;
              same.push_back(put("text", "a\nb\nc\n"));
              return same;
            }()})
            .text.empty());
}

TEST_CASE("a diff does not write to the mirror") {
  Differ world;
  const std::string base = world.upstream.commit({{"a", "a\n"}});
  const CommitTree tree = world.open(base);
  const auto before = snapshot(world.cache.mirror_directory("repo_1"));
  std::vector<Change> changes;
  changes.push_back(put("b/c/d", std::string(100'000, 'x')));
  CHECK_FALSE(tree.patch(std::move(changes)).text.empty());
  CHECK(snapshot(world.cache.mirror_directory("repo_1")) == before);
}

TEST_CASE("a patch lists names that git refuses and keeps the rest") {
  Differ world;
  const std::string base = world.upstream.commit({{"a", "a\n"}});
  const CommitTree tree = world.open(base);
  std::vector<Change> changes;
  for (const char* path : {"sub/.git/config", ".git/hooks/x", "git~1", ".GIT/x", "x/../y"})
    changes.push_back(put(path, "x"));
  changes.push_back(put("fine", "x\n"));
  std::string named;
  for (const DiffStat& stat : tree.stat(changes))
    named += stat.change + " " + stat.path + " " + stat.left_out + "\n";
  CHECK(named ==
        "added .GIT/x name\nadded .git/hooks/x name\nadded fine \nadded git~1 name\n"
        "added sub/.git/config name\nadded x/../y name\n");
  const Patch patch = tree.patch(changes);
  CHECK(patch.text.find("+x\n") != std::string::npos);
  CHECK(
      lacks(patch) ==
      "name .GIT/x 1\nname .git/hooks/x 1\nname git~1 1\nname sub/.git/config 1\nname x/../y 1\n");
}

TEST_CASE("removing everything, or files that never existed, gives valid diffs") {
  Differ world;
  const std::string base = world.upstream.commit({{"a", "a\n"}, {"d/b", "b\n"}});
  const CommitTree tree = world.open(base);
  std::vector<Change> changes;
  changes.push_back(gone("a"));
  changes.push_back(gone("d"));
  changes.push_back(gone("never/there"));
  fs::remove(world.upstream.path() + "/a");
  fs::remove_all(world.upstream.path() + "/d");
  world.expect_applies(tree.patch(std::move(changes)).text, base);
}

TEST_CASE("limits of a diff are enforced and reported") {
  Differ world;
  const std::string base = world.upstream.commit({{"a", "a\n"}});
  const CommitTree tree = world.open(base);
  const auto large = [] {
    std::vector<Change> changes;
    changes.push_back(put("large", std::string(2000, 'x')));
    return changes;
  };
  DiffLimits small_files;
  small_files.max_file_bytes = 1000;
  const auto with_small = [&] {
    auto changes = large();
    changes.push_back(put("small", "s\n"));
    return changes;
  };
  const Patch without_file = tree.patch(with_small(), small_files);
  CHECK(lacks(without_file) == "too_large large 2000\n");
  CHECK(without_file.text.find("+s\n") != std::string::npos);
  CHECK(shown(tree.stat(large(), small_files)) == "added large +0 -0 binary\n");
  DiffLimits small_patch;
  small_patch.max_patch_bytes = 1000;
  CHECK(lacks(tree.patch(with_small(), small_patch)) == "too_large large 2000\n");
  CHECK(tree.patch(with_small(), small_patch).text == without_file.text);
  CHECK(lacks(tree.patch(large())).empty());
}

TEST_CASE("a diff of some paths only, even below a directory that became a file") {
  Differ world;
  const std::string base =
      world.upstream.commit({{"a", "a\n"}, {"d/x", "x\n"}, {"d/y", "y\n"}, {"dx", "dx\n"}});
  const CommitTree tree = world.open(base);
  const auto stat = [&](std::vector<Change> changes, std::vector<std::string> only) {
    return shown(tree.stat_between({{}, std::move(changes), "", std::move(only)}));
  };
  const auto all = [] {
    std::vector<Change> changes;
    for (const char* path : {"a", "d/x", "d/new", "dx"}) changes.push_back(put(path, "1\n"));
    return changes;
  };
  CHECK(stat(all(), {"a"}) == "modified a +1 -1\n");
  CHECK(stat(all(), {"d"}) == "added d/new +1 -0\nmodified d/x +1 -1\n");
  CHECK(stat(all(), {"d/x", "dx"}) == "modified d/x +1 -1\nmodified dx +1 -1\n");
  CHECK(stat(all(), {"none"}).empty());
  std::vector<Change> replaced;
  replaced.push_back(put("d", "now a file\n"));
  CHECK(stat(replaced, {"d/x"}) == "deleted d/x +0 -1\n");
  CHECK(lacks(tree.patch_between({{}, {put("sub/.git/x", "")}, "", {"other"}})).empty());
}

TEST_CASE("worktree contents are compared and diffed in git's form") {
  Differ world;
  const std::string base = world.upstream.commit(
      {{".gitattributes",
        "*.crlf eol=crlf\n*.id ident\n*.u16 "
        "working-tree-encoding=UTF-16LE-BOM\n*.auto text=auto\n*.lfs filter=lfs\n"},
       {"a.crlf", "one\ntwo\n"},
       {"x.id", "$Id$\n"},
       {"mixed.auto", "a\r\nb\n"},
       {"plain", "p\n"}});
  const CommitTree tree = world.open(base);
  const auto equals = [&](const std::string& path, const std::string& bytes) {
    const std::string file = world.directory / "file";
    put_file(file, bytes);
    const base::Fd fd = base::open_file(file, O_RDONLY);
    return tree.content_equals(path, kModeFile, fd.get());
  };
  CHECK(equals("a.crlf", "one\r\ntwo\r\n"));
  CHECK(equals("a.crlf", "one\ntwo\n"));
  CHECK_FALSE(equals("a.crlf", "one\r\nthree\r\n"));
  CHECK(equals("x.id", "$Id: 0123456789012345678901234567890123456789 $\n"));
  CHECK(equals("plain", "p\n"));
  CHECK_FALSE(equals("plain", "p\r\n"));
  CHECK_FALSE(equals("plain", "q\n"));
  CHECK_FALSE(equals("missing", ""));
  std::vector<Change> changes;
  changes.push_back(put("a.crlf", "one\r\ntwo\r\nthree\r\n"));
  changes.push_back(put("x.id", "$Id: 0123456789012345678901234567890123456789 $\n"));
  changes.push_back(put("new.crlf", "n\r\n"));
  changes.push_back(put("sub/.gitattributes", "*.txt eol=crlf\n"));
  changes.push_back(put("sub/x.txt", "x\r\n"));
  changes.push_back(put("lf.crlf", "n\n"));
  changes.push_back(put("pointer.lfs", "p\n"));
  const Patch whole = tree.patch(std::move(changes));
  CHECK(lacks(whole) == "converted lf.crlf 2\nconverted pointer.lfs 2\n");
  const std::string& patch = whole.text;
  CHECK(patch.find('\r') == std::string::npos);
  CHECK(patch.find("x.id") == std::string::npos);
  CHECK(patch.find("+three\n") != std::string::npos);
}

TEST_CASE("a commit's tree can be queried") {
  Differ world;
  put_file(world.upstream.path() + "/run", "#!\n", 0755);
  fs::create_symlink("run", world.upstream.path() + "/link");
  const std::string base = world.upstream.commit({{"d/e/f", "12345"}, {"d/g", "x"}});
  const CommitTree tree = world.open(base);
  CHECK(tree.lookup("d/e/f")->size == 5);
  CHECK(tree.lookup("d/e/f")->mode == kModeFile);
  CHECK(tree.lookup("run")->mode == kModeExecutable);
  CHECK(tree.lookup("link")->mode == kModeSymlink);
  CHECK(tree.lookup("d")->mode == 040000);
  CHECK(tree.lookup("")->mode == 040000);
  CHECK_FALSE(tree.lookup("nothing"));
  CHECK_FALSE(tree.lookup("d/e/f/g"));
  CHECK_FALSE(tree.lookup("d//e"));
  CHECK(tree.is_tracked("link"));
  CHECK_FALSE(tree.is_tracked("d"));
  CHECK(tree.link_equals("link", "run"));
  CHECK_FALSE(tree.link_equals("link", "ran"));
  CHECK(tree.read_blob("d/e/f", 5) == "12345");
  CHECK_THROWS_AS(tree.read_blob("d/e/f", 4), base::Error);
  CHECK(tree.files_below("d") == std::vector<std::string>{"d/e/f", "d/g"});
  CHECK(tree.files_below("") == std::vector<std::string>{"d/e/f", "d/g", "link", "run"});
  CHECK(tree.files_below("run").empty());
}

TEST_CASE("random changes make patches that apply") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  Differ world;
  const std::string& root = world.upstream.path();
  const auto content = [&] {
    std::string text;
    for (unsigned i = random() % 20; i > 0; --i)
      text += std::to_string(random() % 5) + (random() % 12 ? "\n" : "");
    if (random() % 6 == 0) text += '\0';
    return text;
  };
  const auto path_of = [&] {
    std::string path(1, static_cast<char>('a' + random() % 4));
    while (random() % 2) path += std::string("/") + static_cast<char>('a' + random() % 4);
    return path;
  };
  const auto blocked = [&](const std::string& path) {
    for (fs::path up = fs::path(path).parent_path(); !up.empty(); up = up.parent_path()) {
      const auto status = fs::symlink_status(root + "/" + up.string());
      if (fs::exists(status) && !fs::is_directory(status)) return true;
    }
    return fs::is_directory(fs::symlink_status(root + "/" + path));
  };
  for (int round = 0; round < 15; ++round) {
    for (int i = 0; i < 10; ++i) {
      const std::string path = path_of();
      if (!blocked(path)) put_file(root + "/" + path, content());
    }
    const std::string base = world.upstream.commit_all();
    const CommitTree tree = world.open(base);
    std::vector<Change> changes;
    for (int i = 0; i < 8; ++i) {
      const std::string path = path_of();
      if (random() % 3 == 0) {
        std::error_code under_a_file;
        fs::remove_all(root + "/" + path, under_a_file);
      } else if (!blocked(path)) {
        put_file(root + "/" + path, content(), random() % 3 ? 0644 : 0755);
      }
    }
    // Like the caller: the differences between commit and worktree.
    const auto now = snapshot(root);
    for (const auto& file : tree.files_below("")) {
      if (!now.count(file) || fs::is_directory(root + "/" + file)) changes.push_back(gone(file));
    }
    for (const auto& [file, what] : now) {
      if (!fs::is_regular_file(root + "/" + file)) continue;
      changes.push_back(put_fd(file, root + "/" + file));
      const bool executable =
          (fs::status(root + "/" + file).permissions() & fs::perms::owner_exec) != fs::perms::none;
      changes.back().mode = executable ? kModeExecutable : kModeFile;
    }
    for (const auto& entry : fs::directory_iterator(root)) {
      if (fs::is_directory(entry) && fs::is_empty(entry)) fs::remove(entry);
    }
    const std::string place = world.directory / "applied";
    fs::remove_all(place);
    git(world.directory.path(), {"clone", "-q", root, place});
    DiffLimits by_parts;
    by_parts.part_files = 1 + random() % 3;
    const std::string patch = tree.patch(changes).text;
    INFO(patch);
    CHECK(tree.patch(changes, by_parts).text == patch);
    CHECK(shown(tree.stat(changes, by_parts)) == shown(tree.stat(changes)));
    if (!patch.empty()) git(place, {"apply", "--binary", "-"}, patch);
    auto expected = snapshot(root);
    std::erase_if(expected,
                  [](const auto& one) { return one.second.starts_with("16"); });  // directories
    auto found = snapshot(place);
    std::erase_if(found, [](const auto& one) { return one.second.starts_with("16"); });
    CHECK(found == expected);
  }
}
