#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <random>

#include "base/os/files.h"
#include "git_fixture.h"
#include "repo_cache/base_tree.h"

using namespace moorage;
using namespace moorage::repo_cache;
using namespace moorage::repo_cache::test;

namespace fs = std::filesystem;

namespace {

struct Deltas : CachedUpstream {
  BaseTrees trees{cache};
  std::string merged = directory / "merged";

  void write_tree(const std::string& commit) {
    refresh();
    trees.write("repo_1", commit, "", kLong);
  }

  // An overlay of a tree and the delta to another commit, at `merged`.
  DeltaInfo mount_delta(const std::string& from, const std::string& to) {
    write_tree(from);
    const std::string upper = directory / "upper";
    const std::string work = directory / "work";
    for (const std::string& path : {upper, work, merged}) {
      fs::remove_all(path);
      fs::create_directories(path);
    }
    const base::Fd fd = base::open_directory(upper);
    const DeltaInfo info = trees.write_delta_with_index("repo_1", from, to, fd.get());
    const std::string options = "lowerdir=" + trees.directory("repo_1", from) + "/tree" +
                                ",upperdir=" + upper + ",workdir=" + work;
    REQUIRE(mount("overlay", merged.c_str(), "overlay", 0, options.c_str()) == 0);
    return info;
  }

  void mount_places(const std::string& commit) {
    umount2(merged.c_str(), MNT_DETACH);
    fs::create_directories(merged);
    fs::create_directories(directory / "none");
    const auto places = trees.places("repo_1", commit);
    std::string lowers;
    for (const auto& delta : places.deltas) lowers += delta + ":";
    const std::string options = "lowerdir=" + lowers + places.tree + ":" + (directory / "none");
    REQUIRE(mount("overlay", merged.c_str(), "overlay", MS_RDONLY, options.c_str()) == 0);
  }

  void expect_merged_is(const std::string& commit) {
    write_tree(commit);
    const auto expected = snapshot(trees.directory("repo_1", commit) + "/tree");
    const auto found = snapshot(merged);
    for (const auto& [name, what] : expected) {
      INFO("path " << name);
      REQUIRE(found.count(name) == 1);
      CHECK(found.at(name) == what);
    }
    CHECK(found.size() == expected.size());
  }

  std::string git_merged(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"-c", "safe.directory=*"});
    return git(merged, arguments, {},
               {{"GIT_ALTERNATE_OBJECT_DIRECTORIES", cache.objects_directory("repo_1")}});
  }

  ~Deltas() { umount2(merged.c_str(), MNT_DETACH); }
};

// Adds, removes and swaps a dozen files, links, executables and directories.
std::string random_commit(Upstream& upstream, std::mt19937& random) {
  for (int i = 0; i < 12; ++i) {
    std::string path = upstream.path();
    for (unsigned depth = 1 + random() % 3; depth > 0; --depth) {
      path += "/" + std::string(1, static_cast<char>('a' + random() % 3));
      if (fs::symlink_status(path).type() == fs::file_type::symlink) break;
    }
    const unsigned action = random() % 6;
    std::error_code under_a_file;
    fs::remove_all(path, under_a_file);
    for (fs::path up = fs::path(path).parent_path(); up != upstream.path(); up = up.parent_path()) {
      if (fs::exists(fs::symlink_status(up)) && !fs::is_directory(fs::symlink_status(up)))
        fs::remove(up);
    }
    if (action == 0) continue;
    fs::create_directories(fs::path(path).parent_path());
    if (action == 1) {
      fs::create_symlink("target" + std::to_string(random() % 2), path);
    } else {
      put_file(path, std::to_string(random() % 3), action == 2 ? 0755 : 0644);
    }
  }
  return upstream.commit_all();
}

}  // namespace

TEST_CASE("a delta over a base tree shows the other commit, also where files become directories") {
  Deltas world;
  const std::string from = world.upstream.commit({{"same", "same"},
                                                  {"changed", "before"},
                                                  {"gone", "x"},
                                                  {"dir-gone/a", "x"},
                                                  {"dir-gone/sub/b", "x"},
                                                  {"file-to-dir", "x"},
                                                  {"dir-to-file/a", "x"},
                                                  {"dir-to-link/a", "x"},
                                                  {"deep/a/b/c", "x"},
                                                  {"deep/a/b/stays", "x"},
                                                  {"mode", "x"}});
  for (const char* name : {"gone", "dir-gone", "file-to-dir", "dir-to-file", "dir-to-link"}) {
    fs::remove_all(world.upstream.path() + "/" + name);
  }
  put_file(world.upstream.path() + "/mode", "x", 0755);
  fs::create_symlink("same", world.upstream.path() + "/dir-to-link");
  const std::string to = world.upstream.commit({{"changed", "after."},
                                                {"file-to-dir/new", "n"},
                                                {"dir-to-file", "file now"},
                                                {"deep/a/b/c", "y"},
                                                {"new/a/b", "n"},
                                                {"new\nline\xff", "n"}});
  const DeltaInfo info = world.mount_delta(from, to);
  CHECK(info.written == 8);
  CHECK(info.removed == 6);
  world.expect_merged_is(to);
  CHECK(world.git_merged({"status", "--porcelain"}).empty());
  struct stat entry {};
  REQUIRE(stat((world.directory / "upper/changed").c_str(), &entry) == 0);
  CHECK(entry.st_uid == 1'900'001'000);
}

TEST_CASE("a delta with its index is a base tree of the other commit") {
  Deltas world;
  std::map<std::string, std::string> files;
  for (int i = 0; i < 100; ++i)
    files["d" + std::to_string(i % 5) + "/f" + std::to_string(i)] = std::to_string(i);
  const std::string from = world.upstream.commit(files);
  fs::remove(world.upstream.path() + "/d1/f1");
  const std::string to = world.upstream.commit({{"d0/f0", "X"}, {"d9/new", "new"}});
  world.mount_delta(from, to);
  world.expect_merged_is(to);
  CHECK(world.git_merged({"status", "--porcelain"}).empty());
  CHECK(world.git_merged({"rev-parse", "HEAD"}) == to + "\n");
  CHECK(world.git_merged({"fsck", "--no-dangling"}).empty());
}

TEST_CASE("a delta converts files again when attributes change") {
  Deltas world;
  const std::string from =
      world.upstream.commit({{"a.txt", "1\n2\n"}, {"sub/b.txt", "1\n"}, {"c.bin", "1\n"}});
  const std::string to = world.upstream.commit({{".gitattributes", "*.txt eol=crlf\n"}});
  world.mount_delta(from, to);
  CHECK(get_file(world.merged + "/a.txt") == "1\r\n2\r\n");
  world.expect_merged_is(to);
  CHECK(world.git_merged({"status", "--porcelain"}).empty());
}

TEST_CASE("over uncommitted work git's index stands on HEAD, and files are as they were on disk") {
  Deltas world;
  const std::string head =
      world.upstream.commit({{".gitattributes", "*.txt text\n*.win eol=crlf\n"},
                             {"same.c", "same\n"},
                             {"kept.win", "kept\n"},
                             {"plain.win", "plain\n"},
                             {"changed.c", "before\n"},
                             {"gone.c", "x\n"},
                             {"dir/a", "x\n"}});
  fs::remove(world.upstream.path() + "/gone.c");
  const std::string work = world.upstream.commit(
      {{"changed.c", "after.\n"}, {"notes.txt", "1\n2\n"}, {"new/file", "n\n"}});
  const auto raw_of = [&](const std::map<std::string, std::string>& files) {
    world.upstream.run({"read-tree", work});
    for (const auto& [path, bytes] : files) {
      const std::string oid =
          world.upstream.run({"hash-object", "-w", "--no-filters", "--stdin"}, bytes);
      world.upstream.run({"update-index", "--add", "--cacheinfo", "100644," + oid + "," + path});
    }
    const std::string tree = world.upstream.run({"write-tree"});
    const std::string commit = world.upstream.run({"commit-tree", "-p", work, "-m", "raw", tree});
    world.upstream.run({"update-ref", "refs/tags/" + files.begin()->first, commit});
    world.upstream.run({"reset", "--hard", "-q", work});
    return commit;
  };
  const std::string raw = raw_of({{"notes.txt", "1\r\n2\r\n"}, {"kept.win", "kept\r\n"}});
  const std::string same_tree = raw_of({{"changed.c", "after.\n"}});
  const std::string other = raw_of({{"not-in-work", "x"}});
  world.refresh();
  world.trees.write("repo_1", work, "", kLong);
  const std::string upper = world.directory / "upper";
  fs::create_directories(upper + "/.git");
  fs::create_directories(world.directory / "work");
  fs::create_directories(world.merged);
  const base::Fd fd = base::open_directory(upper);
  // A checkout gives kept.win with these line ends; it is not written again.
  CHECK(world.trees.write_raw_files("repo_1", work, raw, fd.get()) == 2);
  CHECK(failure_of([&] { world.trees.write_raw_files("repo_1", work, other, fd.get()); }).code() ==
        base::Code::invalid_argument);
  put_file(upper + "/.git/index", world.trees.index_at("repo_1", work, head, raw));
  put_file(upper + "/.git/HEAD", head + "\n");
  const std::string options = "lowerdir=" + world.trees.directory("repo_1", work) + "/tree" +
                              ",upperdir=" + upper + ",workdir=" + (world.directory / "work");
  REQUIRE(mount("overlay", world.merged.c_str(), "overlay", 0, options.c_str()) == 0);
  CHECK(get_file(world.merged + "/notes.txt") == "1\r\n2\r\n");
  CHECK(get_file(world.merged + "/kept.win") == "kept\r\n");
  CHECK(get_file(world.merged + "/plain.win") == "plain\n");
  fs::create_directories(world.directory / "second");
  const base::Fd second = base::open_directory(world.directory / "second");
  CHECK(world.upstream.run({"diff", "--name-only", work, same_tree}).empty());
  CHECK(world.trees.write_raw_files("repo_1", work, same_tree, second.get()) == 2);
  CHECK(get_file(world.directory / "second/kept.win") == "kept\n");
  CHECK(world.git_merged({"status", "--porcelain", "-uall"}) ==
        " M changed.c\n D gone.c\n?? new/file\n?? notes.txt\n");
  CHECK(world.git_merged({"write-tree"}) ==
        world.upstream.run({"rev-parse", head + "^{tree}"}) + "\n");
  CHECK(world.git_merged({"add", "-A"}).empty());
  CHECK(world.git_merged({"write-tree"}) ==
        world.upstream.run({"rev-parse", work + "^{tree}"}) + "\n");
}

TEST_CASE("random deltas show the other commit") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 8; ++round) {
    Deltas world;
    const auto change = [&] { return random_commit(world.upstream, random); };
    const std::string from = change();
    const std::string to = change();
    world.mount_delta(from, to);
    INFO(world.upstream.run({"diff", "--raw", from, to}));
    world.expect_merged_is(to);
    CHECK(world.git_merged({"status", "--porcelain"}).empty());
  }
}

TEST_CASE("stacked deltas show each commit, and become whole trees with the same index") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 4; ++round) {
    Deltas world;
    std::vector<std::string> commits;
    for (size_t i = 0; i <= kMaxDeltas; ++i)
      commits.push_back(random_commit(world.upstream, random));
    world.write_tree(commits.front());
    Deltas plain;  // whole trees of the same commits, to compare with
    plain.upstream.run({"pull", "-q", world.upstream.path(), "main"});
    for (size_t i = 1; i < commits.size(); ++i) {
      if (commits[i] == commits[i - 1]) continue;
      const auto info = world.trees.write_over("repo_1", commits[i], commits[i - 1], kLong);
      CHECK(info.parent == commits[i - 1]);
      CHECK(world.trees.whole("repo_1", commits[i]));
      CHECK(world.trees.damage("repo_1", commits[i]).empty());
      world.mount_places(commits[i]);
      plain.write_tree(commits[i]);
      INFO(world.upstream.run({"diff", "--raw", commits[i - 1], commits[i]}));
      CHECK(snapshot(world.merged) ==
            snapshot(plain.trees.directory("repo_1", commits[i]) + "/tree"));
      CHECK(world.git_merged({"--no-optional-locks", "status", "--porcelain"}).empty());
      CHECK(world.git_merged({"rev-parse", "HEAD"}) == commits[i] + "\n");
      const auto expected = plain.trees.info("repo_1", commits[i]);
      CHECK(info.files == expected.files);
      CHECK(info.directories == expected.directories);
      CHECK(info.bytes == expected.bytes);
    }
    const std::string& last = commits.back();
    const std::string index = world.trees.index("repo_1", last);
    const auto before = world.trees.places("repo_1", last);
    world.mount_places(last);
    const auto shown = snapshot(world.merged);
    CHECK(world.trees.make_whole("repo_1", last, "", kLong, {}).parent.empty());
    CHECK(world.trees.index("repo_1", last) == index);
    const auto places = world.trees.places("repo_1", last);
    CHECK(places.deltas.empty());
    CHECK(snapshot(places.tree) == shown);
    CHECK(snapshot(world.merged) == shown);  // the old mount still works
    REQUIRE(world.trees.has_old_form("repo_1", last));
    CHECK(fs::exists(before.deltas.front()));
    umount2(world.merged.c_str(), MNT_DETACH);
    world.trees.remove_old_form("repo_1", last);
    CHECK_FALSE(fs::exists(before.deltas.front()));
    CHECK(world.trees.whole("repo_1", last));
    CHECK(snapshot(places.tree) == shown);
  }
}

TEST_CASE("a delta handles submodules' directories and counts LFS pointers") {
  Deltas world;
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, 'a') +
      "\nsize 12345\n";
  const std::string from = world.upstream.commit({{".gitattributes", "*.bin filter=lfs\n"},
                                                  {"a.bin", pointer},
                                                  {"b.bin", pointer},
                                                  {"c.bin", "not a pointer"}});
  world.upstream.run({"update-index", "--add", "--cacheinfo", "160000," + from + ",sub"});
  world.upstream.run({"commit", "-q", "-m", "with a submodule"});
  const std::string with = world.upstream.head();
  world.write_tree(from);
  const auto info = world.trees.write_over("repo_1", with, from, kLong);
  CHECK(info.submodules == 1);
  CHECK(info.lfs_files == 2);
  world.upstream.run({"update-index", "--add", "--cacheinfo", "160000," + with + ",sub"});
  world.upstream.run({"rm", "-q", "--cached", "a.bin"});
  world.upstream.run({"commit", "-q", "-m", "the submodule moved"});
  const std::string moved = world.upstream.head();
  world.refresh();
  const auto next = world.trees.write_over("repo_1", moved, with, kLong);
  CHECK(next.submodules == 1);
  CHECK(next.lfs_files == 1);
  world.mount_places(moved);
  CHECK(world.git_merged({"--no-optional-locks", "status", "--porcelain"}).empty());
  CHECK(world.git_merged({"ls-files", "-s", "sub"}).find(with) != std::string::npos);
}

TEST_CASE("the nearest commit is found within limits") {
  Deltas world;
  std::map<std::string, std::string> files;
  for (int i = 0; i < 50; ++i) files["d/f" + std::to_string(i)] = "x";
  const std::string from = world.upstream.commit({{"same", "same"}});
  const std::string to = world.upstream.commit(files);
  world.refresh();
  const auto nearest = [&](const std::string& commit,
                           const std::vector<BaseTrees::Candidate>& candidates) {
    return world.trees.nearest("repo_1", commit, candidates).value_or("none");
  };
  CHECK(nearest(to, {{from, 50}}) == from);
  CHECK(nearest(to, {{from, 49}}) == "none");
  CHECK(nearest(from, {{to, 50}}) == to);
  const std::string next = world.upstream.commit({{"same", "changed"}});
  world.refresh();
  CHECK(nearest(next, {{from, 100}, {to, 100}}) == to);
  CHECK(nearest(next, {{to, 100}, {from, 100}}) == to);
  CHECK(nearest(to, {{to, 0}, {from, 100}}) == to);
}

TEST_CASE("a commit with too many attribute patterns for its files is refused in each form") {
  Deltas world;
  std::map<std::string, std::string> files;
  for (int i = 0; i < 20; ++i) files["f" + std::to_string(i)] = "x\n";
  const std::string plain = world.upstream.commit(files);
  std::string rules;
  for (int i = 0; i < 200; ++i) rules += "name" + std::to_string(i) + " text\n";
  const std::string ruled = world.upstream.commit({{".gitattributes", rules}});
  world.write_tree(plain);
  RepoCacheOptions options = world.cache.options();
  options.max_attribute_steps = 200 * 10;
  const RepoCache cache(options);
  BaseTrees trees(cache);
  const auto refused = [](const std::function<void()>& work) {
    const base::Error error = failure_of(work);
    CHECK(error.code() == base::Code::resource_exhausted);
    CHECK(error.message().find(".gitattributes") != std::string::npos);
  };
  const auto delta = [&](const std::string& from, const std::string& to) {
    const std::string upper = world.directory / "upper";
    fs::remove_all(upper);
    fs::create_directories(upper);
    const base::Fd fd = base::open_directory(upper);
    return trees.write_delta_with_index("repo_1", from, to, fd.get());
  };
  refused([&] { trees.write("repo_1", ruled, "", kLong); });
  refused([&] { trees.write_over("repo_1", ruled, plain, kLong); });
  CHECK_FALSE(trees.exists("repo_1", ruled));
  CHECK(trees.leftovers("repo_1").empty());
  refused([&] { delta(plain, ruled); });

  world.trees.write_over("repo_1", ruled, plain, kLong);  // within the default limit
  refused([&] { trees.make_whole("repo_1", ruled, "", kLong, {}); });
  CHECK(trees.whole("repo_1", ruled));
  world.trees.make_whole("repo_1", ruled, "", kLong, {});
  refused([&] { delta(ruled, plain); });
}
