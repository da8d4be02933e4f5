#include "repo_cache/base_tree.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/os/files.h"
#include "git_fixture.h"
#include "thrown_code.h"

using namespace moorage;
using namespace moorage::repo_cache;
using namespace moorage::repo_cache::test;

namespace fs = std::filesystem;

namespace {

constexpr uid_t kOwner = 1'900'001'000;

struct Trees : CachedUpstream {
  BaseTrees trees{cache};

  BaseTreeInfo write(const std::string& commit, const std::string& origin = "https://host/a/b") {
    refresh();
    return trees.write("repo_1", commit, origin, kLong);
  }
  std::string path(const std::string& commit) const {
    return trees.directory("repo_1", commit) + "/tree";
  }

  // git's own checkout of the commit.
  std::map<std::string, std::string> checked_out_by_git(const std::string& commit) {
    const std::string place = directory / ("checkout-" + commit);
    git(directory.path(), {"clone", "-q", "--no-checkout", upstream.path(), place});
    git(place, {"checkout", "-q", "--detach", commit});
    return snapshot(place);
  }
  void expect_like_git(const std::string& commit) {
    write(commit);
    const auto ours = snapshot(path(commit));
    const auto theirs = checked_out_by_git(commit);
    CHECK(ours.size() == theirs.size());
    for (const auto& [name, what] : theirs) {
      INFO("path " << name);
      REQUIRE(ours.count(name) == 1);
      CHECK(ours.at(name) == what);
    }
  }
  std::map<std::string, std::string> with_objects() const {
    return {{"GIT_ALTERNATE_OBJECT_DIRECTORIES", cache.objects_directory("repo_1")}};
  }
};

// Runs git in a base tree as in a sandbox: as the owner of its files, where the alternates' path
// exists.
std::string git_in(const Trees& world, const std::string& tree, std::vector<std::string> arguments,
                   std::map<std::string, std::string> environment = {}) {
  environment.merge(world.with_objects());
  std::vector<std::string> all = {"-c", "safe.directory=*"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return git(tree, all, {}, environment);
}

std::string hash_of(const Upstream& upstream, const std::string& bytes) {
  return upstream.run({"hash-object", "-w", "--stdin"}, bytes);
}

}  // namespace

TEST_CASE("a base tree equals git's checkout, including odd names and kinds") {
  Trees world;
  const std::string long_name(255, 'n');
  world.upstream.commit({{"plain.txt", "one\ntwo\n"},
                         {"new\nline", "x"},
                         {"quo\"te's", "x"},
                         {"\xff\xfe\x80 not utf-8", "x"},
                         {"tab\there", ""},
                         {"back\\slash", "b"},
                         {" leading", "x"},
                         {long_name, "long"},
                         {"d/" + long_name + "/" + long_name, "deep"},
                         {"a/b/c/d/e/f/g", "deep\n"},
                         {"a.b", "sorts before a/"},
                         {"a0", "sorts after a/"},
                         {"binary", std::string("\0\1\2\xff\r\n", 6)},
                         {"large", std::string(3 << 20, 'L')}});
  put_file(world.upstream.path() + "/run.sh", "#!/bin/sh\n", 0755);
  fs::create_symlink("plain.txt", world.upstream.path() + "/link");
  fs::create_symlink("/etc/passwd", world.upstream.path() + "/absolute");
  fs::create_symlink("../../outside", world.upstream.path() + "/a/outside");
  fs::create_symlink("missing\n\xff", world.upstream.path() + "/odd target");
  const std::string commit = world.upstream.commit_all();
  world.expect_like_git(commit);
  const BaseTreeInfo info = world.trees.info("repo_1", commit);
  CHECK(info.files == 19);
  CHECK(info.directories == 8);
  struct stat status {};
  for (const char* name :
       {"", "/plain.txt", "/link", "/a/b", "/.git", "/.git/index", "/.git/objects/info"}) {
    INFO(name);
    REQUIRE(lstat((world.path(commit) + name).c_str(), &status) == 0);
    CHECK(status.st_uid == kOwner);
    CHECK(status.st_gid == kOwner);
  }
}

TEST_CASE("line ends, ident and encodings equal git's checkout") {
  Trees world;
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, 'a') +
      "\nsize 12345\n";
  std::map<std::string, std::string> files = {
      {".gitattributes",
       "*.crlf text eol=crlf\n*.lf text eol=lf\n*.auto text=auto eol=crlf\n*.id ident\n*.both "
       "ident text eol=crlf\n"
       "*.u16 text working-tree-encoding=UTF-16\n*.le working-tree-encoding=UTF-16LE-BOM eol=crlf\n"
       "*.lat working-tree-encoding=ISO-8859-1\n[attr]dos text eol=crlf\n*.macro dos\n*.nomacro "
       "dos -text\n"
       "\"quoted name.txt\" eol=crlf\n*.old crlf\n*.oldin crlf=input\n*.bin binary\n*.odd "
       "working-tree-encoding=NOPE\n"
       "*.pics filter=lfs diff=lfs merge=lfs -text\n*.other filter=custom\n"},
      {"sub/.gitattributes",
       "*.txt eol=crlf\n!*.lf eol=crlf\n/anchored.* eol=crlf\ndeep/** eol=crlf\n*.crlf -text\n"},
      {"sub/deep/.gitattributes", "*.txt !eol\n"},
      {"quoted name.txt", "a\nb\n"},
      {"img.pics", pointer},
      {"not.pics", "an ordinary file with the attribute\n"},
      {"no attribute", pointer},
      {"x.other", "left alone\n"},
  };
  const std::vector<std::string> contents = {"a\nb\n",
                                             "a\r\nb\r\n",
                                             "a\nb\r\nc\n",
                                             "lone\rcr\n",
                                             std::string("zero\0byte\n", 10),
                                             "$Id$ x $Id: 0123 $\n$Id: a b $\n$Id: broken\n$\n",
                                             "",
                                             "no newline",
                                             "\xc3\xa9\xc3\xa0\n",
                                             "$Id",
                                             "x$Id: y$",
                                             std::string(300, '\x01') + "\n",
                                             "eof\n\x1a"};
  const std::vector<std::string> endings = {"crlf", "lf",  "auto",  "id",    "both",
                                            "u16",  "le",  "lat",   "macro", "nomacro",
                                            "txt",  "old", "oldin", "bin",   "odd"};
  const std::vector<std::string> places = {"", "sub/", "sub/deep/", "sub/anchored."};
  for (size_t i = 0; i < contents.size(); ++i) {
    for (const auto& ending : endings) {
      for (const auto& place : places)
        files[place + "f" + std::to_string(i) + "." + ending] = contents[i];
    }
  }
  // Writes the objects directly, as `git add` would convert them first.
  std::string input;
  for (const auto& [name, bytes] : files) {
    const std::string quoted = name.find(' ') == std::string::npos ? name : "\"" + name + "\"";
    input += "M 100644 inline " + quoted + "\ndata " + std::to_string(bytes.size()) + "\n" + bytes +
             "\n";
  }
  world.upstream.run(
      {"fast-import", "--quiet"},
      "commit refs/heads/main\ncommitter A <a@example.org> 1700000000 +0000\ndata 1\nx\n" + input);
  const std::string commit = world.upstream.run({"rev-parse", "main"});
  world.expect_like_git(commit);
  CHECK(world.trees.info("repo_1", commit).lfs_files == 1);
  CHECK(world.trees.info("repo_1", commit).other_filters == 1);
}

TEST_CASE("random attributes have the same effect as in git") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto pick = [&](const auto& list) { return list[random() % list.size()]; };
  const std::vector<std::string> patterns = {"*",      "*.a",  "b*",     "/x", "d/*",
                                             "**/y.a", "d/**", "[xy].?", "x",  "e/"};
  const std::vector<std::string> words = {
      "text", "-text", "!text",      "text=auto", "eol=crlf", "eol=lf",     "!eol",
      "crlf", "-crlf", "crlf=input", "binary",    "-binary",  "ident",      "-ident",
      "mac",  "!mac",  "text=bogus", "eol",       "-eol",     "bad name=1", "ident=yes"};
  const std::vector<std::string> bytes = {"a\nb\n", "a\r\nb\n", "$Id$\n", "a\rb\n",
                                          std::string("\0\n", 2)};
  for (int round = 0; round < 6; ++round) {
    Trees world;
    const auto rules = [&](bool root) {
      std::string text;
      if (root && random() % 2) text += "[attr]mac " + pick(words) + " " + pick(words) + "\n";
      for (int i = 0; i < 5; ++i)
        text += pick(patterns) + " " + pick(words) + " " + pick(words) + "\n";
      return text;
    };
    std::map<std::string, std::string> files = {{".gitattributes", rules(true)},
                                                {"d/.gitattributes", rules(false)}};
    for (const char* name : {"x", "y.a", "b.a", "d/x", "d/y.a", "d/e/y.a", "d/e/b", "e/x"}) {
      for (size_t i = 0; i < bytes.size(); ++i) files[name + std::string(i, '_')] = bytes[i];
      files[name] = pick(bytes);
    }
    std::string input;
    for (const auto& [name, content] : files) {
      input += "M 100644 inline " + name + "\ndata " + std::to_string(content.size()) + "\n" +
               content + "\n";
    }
    world.upstream.run(
        {"fast-import", "--quiet"},
        "commit refs/heads/main\ncommitter A <a@example.org> 1700000000 +0000\ndata 1\nx\n" +
            input);
    INFO("root rules:\n" << files[".gitattributes"] << "d rules:\n" << files["d/.gitattributes"]);
    world.expect_like_git(world.upstream.run({"rev-parse", "main"}));
  }
}

TEST_CASE("a file of more than 64 MiB is refused only if its bytes would change") {
  Trees world;
  const std::string large = std::string(65 << 20, 'x') + "\n";
  std::map<std::string, std::string> files = {{".gitattributes", "* text=auto\n"},
                                              {"large", large}};
  world.expect_like_git(world.upstream.commit(files));
  files[".gitattributes"] = "* text=auto eol=crlf\n";
  files["large"] = large + std::string(1, '\0');  // binary
  world.expect_like_git(world.upstream.commit(files));
  files["large"] = large;
  const std::string converted = world.upstream.commit(files);
  CHECK(code_thrown_by([&] { world.write(converted); }) == base::Code::resource_exhausted);
}

TEST_CASE("the first git status hashes nothing and finds nothing") {
  Trees world;
  std::map<std::string, std::string> files = {{".gitattributes", "*.crlf eol=crlf\n"},
                                              {"x.crlf", "a\nb\n"}};
  for (int i = 0; i < 200; ++i)
    files["d" + std::to_string(i % 7) + "/f" + std::to_string(i)] = std::to_string(i);
  const std::string commit = world.upstream.commit(files);
  world.write(commit);
  // As in a sandbox: at another place, through another mount.
  const std::string place = world.directory / "mounted";
  fs::create_directories(place);
  REQUIRE(mount(world.path(commit).c_str(), place.c_str(), nullptr, MS_BIND, nullptr) == 0);
  const std::string index_before = get_file(place + "/.git/index");
  // Other bytes of the same length and time, to detect whether a file is read.
  for (int i = 0; i < 200; ++i) {
    const std::string path = place + "/d" + std::to_string(i % 7) + "/f" + std::to_string(i);
    const fs::file_time_type time = fs::last_write_time(path);
    put_file(path, std::string(std::to_string(i).size(), '#'));
    fs::last_write_time(path, time);
  }
  CHECK(git_in(world, place, {"status", "--porcelain"}).empty());
  CHECK(get_file(place + "/.git/index") == index_before);
  fs::last_write_time(place + "/d0/f0", fs::file_time_type::clock::now());
  CHECK(git_in(world, place, {"status", "--porcelain"}) == " M d0/f0\n");
  umount(place.c_str());
}

TEST_CASE("git accepts the index, the cache tree and the objects of a base tree") {
  Trees world;
  world.upstream.commit(
      {{"a/b/one", "1"}, {"a/b0/two", "2"}, {"a/bb/three", "3"}, {"a.c", "4"}, {"z", "5"}});
  const std::string submodule = world.upstream.head();
  world.upstream.run({"update-index", "--add", "--cacheinfo", "160000," + submodule + ",mod/sub"});
  world.upstream.run({"commit", "-q", "-m", "submodule"});
  const std::string commit = world.upstream.head();
  CHECK(world.write(commit).submodules == 1);
  const std::string tree = world.path(commit);
  CHECK(git_in(world, tree, {"status", "--porcelain"}).empty());
  CHECK(git_in(world, tree, {"ls-files", "--stage"}) ==
        git(world.upstream.path(),
            {"ls-tree", "-r", commit, "--format=%(objectmode) %(objectname) 0%x09%(path)"}));
  CHECK(git_in(world, tree, {"fsck", "--no-dangling"}).empty());
  CHECK(git_in(world, tree, {"rev-parse", "HEAD"}) == commit + "\n");
  CHECK(git_in(world, tree, {"config", "remote.origin.url"}) == "https://host/a/b\n");
  // With a valid cache tree, write-tree creates no tree object.
  const std::string index = get_file(tree + "/.git/index");
  CHECK(index.find("TREE") != std::string::npos);
  const std::string theirs = world.directory / "index";
  git_in(world, tree, {"read-tree", "HEAD"}, {{"GIT_INDEX_FILE", theirs}});
  const std::string their_index = get_file(theirs);
  const size_t our_tree = index.rfind("TREE");
  const size_t their_tree = their_index.rfind("TREE");
  CHECK(index.substr(our_tree, index.size() - 20 - our_tree) ==
        their_index.substr(their_tree, their_index.size() - 20 - their_tree));
}

TEST_CASE("all times in a base tree are past and well before the index") {
  Trees world;
  put_file(world.upstream.path() + "/f", "x");
  world.upstream.run({"add", "-A"});
  git(world.upstream.path(), {"commit", "-q", "-m", "future"}, {},
      {{"GIT_COMMITTER_DATE", "4000000000 +0000"}});
  const std::string future = world.upstream.head();
  git(world.upstream.path(), {"commit", "-q", "--allow-empty", "-m", "past"}, {},
      {{"GIT_COMMITTER_DATE", "100000000 +0000"}});
  const std::string past = world.upstream.head();
  world.write(future);
  world.write(past);
  struct stat status {};
  REQUIRE(stat((world.path(future) + "/f").c_str(), &status) == 0);
  CHECK(status.st_mtime <= time(nullptr) - 10);
  REQUIRE(stat((world.path(past) + "/f").c_str(), &status) == 0);
  CHECK(status.st_mtime == 315'532'800);
}

TEST_CASE("a hostile tree is refused with its path and leaves nothing") {
  Trees world;
  const std::string blob = hash_of(world.upstream, "x");
  const std::string link = hash_of(world.upstream, "../../../../tmp");
  const auto tree_with = [&](const std::string& mode, const std::string& name,
                             const std::string& oid) {
    std::string raw = mode + " " + name + '\0';
    for (size_t i = 0; i < oid.size(); i += 2)
      raw += static_cast<char>(std::stoi(oid.substr(i, 2), nullptr, 16));
    return raw;
  };
  const auto store = [&](const std::string& raw) {
    return world.upstream.run({"hash-object", "-w", "-t", "tree", "--literally", "--stdin"}, raw);
  };
  world.upstream.commit({{"good", "x"}});
  world.refresh();
  // A fetch would refuse such objects, so they are written to the mirror directly.
  const std::string mirror = world.cache.mirror_directory("repo_1");
  put_file(mirror + "/objects/info/alternates", world.upstream.path() + "/.git/objects\n");
  const std::vector<std::string> names = {".git",
                                          ".GIT",
                                          ".Git",
                                          "git~1",
                                          "GIT~1",
                                          ".git.",
                                          ".git ",
                                          ".git . .",
                                          ".git::$INDEX_ALLOCATION",
                                          ".g\u200cit",
                                          "\u200d.git",
                                          ".gi\u206ft",
                                          ".git\\x",
                                          "..",
                                          ".",
                                          std::string(256, 'n')};
  std::vector<std::string> trees;
  for (const auto& name : names) trees.push_back(store(tree_with("100644", name, blob)));
  const std::string sub = store(tree_with("100644", "config", blob));
  trees.push_back(store(tree_with("40000", ".git", sub)));
  trees.push_back(store(tree_with("120000", ".gitmodules", link)));
  trees.push_back(store(tree_with("100644", "a", blob) + tree_with("40000", "a", sub)));
  trees.push_back(store(tree_with("100644", "b", blob) + tree_with("100644", "a", blob)));
  trees.push_back(store(tree_with("100644", "a", blob) + tree_with("100644", "a", blob)));
  trees.push_back(store(tree_with("120000", "d", link) + tree_with("40000", "d", sub)));
  for (const auto& tree : trees) {
    const std::string commit = world.upstream.run({"commit-tree", "-m", "x", tree});
    INFO(world.upstream.run({"ls-tree", tree}));
    RepoCache fresh(world.cache.options());
    const base::Error error =
        failure_of([&] { BaseTrees(fresh).write("repo_1", commit, "", kLong); });
    // libgit2 refuses some of them itself, as broken objects.
    CHECK((error.code() == base::Code::invalid_argument || error.code() == base::Code::corrupted));
    CHECK_FALSE(world.trees.exists("repo_1", commit));
    fs::remove(world.cache.directory("repo_1") + "/suspect");
  }
  CHECK(base::list_directory(world.cache.directory("repo_1") + "/trees").empty());
  CHECK_NOTHROW(
      BaseTrees(world.cache).write("repo_1", world.upstream.run({"rev-parse", "main"}), "", kLong));
}

TEST_CASE("a few trees that expand to billions of files are refused early") {
  Trees world;
  world.upstream.commit({{"good", "x"}});
  std::string tree =
      world.upstream.run({"mktree"}, "100644 blob " + hash_of(world.upstream, "x") + "\tfile\n");
  for (int level = 0; level < 12; ++level) {
    std::string entries;
    for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
      entries += "040000 tree " + tree + "\t" + name + std::string(200, 'x') + "\n";
    }
    tree = world.upstream.run({"mktree"}, entries);
  }
  const std::string commit = world.upstream.run({"commit-tree", "-m", "x", tree});
  world.upstream.run({"branch", "bomb", commit});
  world.refresh();
  const base::Error error = failure_of([&] { world.trees.write("repo_1", commit, "", kLong); });
  CHECK(error.code() == base::Code::resource_exhausted);
  CHECK_FALSE(world.trees.exists("repo_1", commit));
}

TEST_CASE("concurrent requests write a base tree once") {
  Trees world;
  std::map<std::string, std::string> files;
  for (int i = 0; i < 500; ++i)
    files["d" + std::to_string(i % 20) + "/f" + std::to_string(i)] = "x";
  const std::string commit = world.upstream.commit(files);
  world.refresh();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { world.trees.write("repo_1", commit, "", kLong); });
  }
  for (auto& thread : threads) thread.join();
  CHECK(world.trees.list("repo_1") == std::vector<std::string>{commit});
  CHECK(world.trees.info("repo_1", commit).files == 500);
  world.trees.sync("repo_1", commit);
  world.trees.remove("repo_1", commit);
  CHECK(world.trees.list("repo_1").empty());
  CHECK_THROWS_AS(world.trees.write("repo_1", std::string(40, '1'), "", kLong), base::Error);
  CHECK_THROWS_AS(world.trees.write("repo_1", "../../etc", "", kLong), base::Error);
}

TEST_CASE("an incomplete base tree is written again") {
  Trees world;
  const std::string commit = world.upstream.commit({{"f", "x"}});
  world.refresh();
  const std::string half = world.trees.directory("repo_1", commit) + ".new/tree";
  fs::create_directories(half);
  put_file(half + "/f", "half");
  CHECK_FALSE(world.trees.exists("repo_1", commit));
  CHECK(world.trees.write("repo_1", commit, "", kLong).files == 1);
  CHECK(get_file(world.path(commit) + "/f") == "x");
}

TEST_CASE("a checkout reports progress and obeys its deadline") {
  Trees world;
  std::map<std::string, std::string> files;
  for (int i = 0; i < 600; ++i) files["f" + std::to_string(i)] = std::to_string(i);
  const std::string commit = world.upstream.commit(files);
  world.refresh();
  CHECK(failure_of([&] { world.trees.write("repo_1", commit, "", Duration(1)); }).code() ==
        base::Code::deadline_exceeded);
  CHECK_FALSE(world.trees.exists("repo_1", commit));
  std::atomic<int> last{-1};
  world.trees.write("repo_1", commit, "", kLong, [&](const Progress& progress) {
    CHECK(progress.phase == "checkout");
    last = progress.percent;
  });
  CHECK(last == 100);
}
