// Compares two states of workspaces, and checks the patches with git apply.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/error.h"
#include "base/os/files.h"
#include "workspace/changes/changes.h"
#include "workspace/changes/changes_fixture.h"

namespace moorage::workspace {
namespace {

namespace fs = std::filesystem;

void put(const std::string& path, const std::string& bytes) {
  fs::create_directories(fs::path(path).parent_path());
  base::write_file(path, bytes, 0644);
}

void fill(const std::string& root) {
  put(root + "/README.md", "read me\n");
  put(root + "/src/a.c", "int a;\nint b;\n");
  put(root + "/src/b.c", "int b;\n");
  put(root + "/src/deep/er/file", "deep\n");
  put(root + "/data", std::string("\0\1\2binary", 9));
  put(root + "/windows.txt", "line\r\nline\r\n");
  put(root + "/.gitattributes", "windows.txt text eol=crlf\n");
  put(root + "/.gitignore", "*.o\n");
  fs::create_symlink("README.md", root + "/link");
}

struct TwoStates : ChangesFixture {
  TwoStates() : ChangesFixture(fill) {}
  void edit(const std::string& script) { run(tree, {"sh", "-euc", script}); }
  // The current state becomes the first side; later edits make the second.
  void go_on() {
    before = source;
    first = changes->patch(source).text;
    freeze();
  }
  std::set<std::string> names() {
    std::set<std::string> found;
    for (const auto& one : changes->stat(before, source)) found.insert(one.change + " " + one.path);
    return found;
  }
  // The tree of a clean checkout patched to the first state and from there to the second.
  std::set<std::string> replayed() {
    const std::string clean = directory.path() + "/replayed";
    git("/", {"clone", "-q", directory.path() + "/origin", clean});
    for (const std::string& patch : {first, changes->patch(before, source).text}) {
      if (patch.empty()) continue;
      base::write_file(directory.path() + "/one", patch);
      git(clean, {"apply", "--binary", "--whitespace=nowarn", directory.path() + "/one"});
    }
    git(clean, {"add", "-A"});
    std::set<std::string> lines;
    const std::string listed = git(clean, {"ls-files", "-s", "-z"});
    for (size_t at = 0, end = 0; (end = listed.find('\0', at)) != std::string::npos; at = end + 1)
      lines.insert(listed.substr(at, end - at));
    fs::remove_all(clean);
    return lines;
  }

  ChangeSource before;
  std::string first;
};

}  // namespace

TEST_CASE("a state does not differ from itself") {
  layers::in_own_namespace([] {
    TwoStates two;
    two.edit("echo more >> README.md; echo new > new; rm src/b.c");
    two.go_on();
    CHECK(two.names().empty());
    CHECK(two.changes->patch(two.before, two.source).text.empty());
    two.edit("touch README.md new; rm new; echo new > new");
    CHECK(two.names().empty());
  });
}

TEST_CASE("a newer base that the mirror lacks does not count") {
  layers::in_own_namespace([] {
    TwoStates two;
    two.go_on();
    two.edit("echo more >> README.md");
    two.source.moved_commit = std::string(40, '1');
    CHECK(two.names() == std::set<std::string>{"modified README.md"});
    CHECK(two.replayed() == two.tree_of_workspace());
  });
}

TEST_CASE("only differences between the two are listed, whatever both changed since the base") {
  layers::in_own_namespace([] {
    TwoStates two;
    two.edit("echo more >> README.md; echo both > both; rm src/b.c; git mv src/deep deep 2>&1");
    two.go_on();
    two.edit(
        "echo other >> both; git checkout -q HEAD README.md; echo b > src/b.c; chmod +x src/a.c;"
        "rm data; printf '\\0\\377' > blob; ln -sf data link; printf 'x\\r\\n' > windows.txt;"
        "mv deep shallow; echo ignored > a.o");
    CHECK(two.names() == std::set<std::string>{
                             "modified both", "modified README.md", "added src/b.c", "mode src/a.c",
                             "deleted data", "added blob", "modified link", "modified windows.txt",
                             "deleted deep/er/file", "added shallow/er/file"});
    CHECK(two.replayed() == two.tree_of_workspace());
    for (const auto& one : two.changes->stat(two.before, two.source)) {
      if (one.path == "both") {
        CHECK(one.added == 1);
        CHECK(one.bytes_before == 5);
        CHECK(one.bytes_after == 11);
      }
      if (one.path == "blob") {
        CHECK(one.binary);
        CHECK(one.bytes_before == 0);
        CHECK(one.bytes_after == 2);
      }
      if (one.path == "data") CHECK(one.bytes_after == 0);
    }
  });
}

TEST_CASE("a file and a directory of the same name trade places") {
  layers::in_own_namespace([] {
    TwoStates two;
    two.edit("rm README.md; mkdir README.md; echo f > README.md/f; rm -r src; echo s > src");
    two.go_on();
    two.edit("rm -r README.md src; echo again > README.md; mkdir src; echo c > src/c.c");
    CHECK(two.replayed() == two.tree_of_workspace());
    CHECK(two.names() == std::set<std::string>{"deleted README.md/f", "added README.md",
                                               "deleted src", "added src/c.c"});
  });
}

TEST_CASE("swapping the two states reverses the differences") {
  layers::in_own_namespace([] {
    TwoStates two;
    two.edit("echo one > one");
    two.go_on();
    two.edit("rm one; echo two > two");
    const auto back = two.changes->stat(two.source, two.before);
    REQUIRE(back.size() == 2);
    CHECK(back[0].path == "one");
    CHECK(back[0].change == "added");
    CHECK(back[1].change == "deleted");
  });
}

TEST_CASE("a file too large for a patch is reported and counts as binary") {
  layers::in_own_namespace([] {
    TwoStates two;
    two.edit("head -c 100000 /dev/zero | tr '\\0' x > large");
    two.go_on();
    two.edit("echo more >> large");
    const auto stats = two.changes->stat(two.before, two.source, {.max_bytes = 1000});
    REQUIRE(stats.size() == 1);
    CHECK(stats[0].path == "large");
    CHECK(stats[0].binary);
    const Patch patch = two.changes->patch(two.before, two.source, {.max_bytes = 1000});
    CHECK(patch.text.empty());
    REQUIRE(patch.left_out.size() == 1);
    CHECK(patch.left_out[0].path == "large");
  });
}

}  // namespace moorage::workspace
