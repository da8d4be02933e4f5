#include "workspace/changes/changes.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/look_memory.h"
#include "workspace/changes/changes_fixture.h"

namespace moorage::workspace {
namespace {

namespace fs = std::filesystem;
using Lines = std::set<std::string>;

void put(const std::string& path, const std::string& bytes, mode_t mode = 0644) {
  fs::create_directories(fs::path(path).parent_path());
  base::write_file(path, bytes, mode);
}

void fill_small(const std::string& root) {
  put(root + "/README.md", "read me\n");
  put(root + "/bin/run", "#!/bin/sh\n", 0755);
  put(root + "/src/a.c", "int a;\nint b;\n");
  put(root + "/src/b.c", "int b;\n");
  put(root + "/src/deep/er/file", "deep\n");
  put(root + "/data", std::string("\0\1\2binary", 9));
  put(root + "/windows.txt", "line\r\nline\r\n");
  put(root + "/.gitattributes", "windows.txt text eol=crlf\n");
  put(root + "/.gitignore", "*.o\n/build/\n");
  put(root + "/kept.o", "tracked although ignored\n");
  fs::create_symlink("README.md", root + "/link");
}

// Runs a shell script as the agent in the workspace.
void edit(ChangesFixture& fixture, const std::string& script) {
  fixture.run(fixture.tree, {"sh", "-euc", script});
}

void check_against_git(ChangesFixture& fixture) {
  CHECK(fixture.our_status() == fixture.status_of_git());
  CHECK(fixture.changes->count(fixture.source).files ==
        fixture.changes->status(fixture.source).changes.size());
  const std::string patch = fixture.changes->patch(fixture.source).text;
  INFO(patch);
  const Lines applied = fixture.tree_after_patch(patch);
  const Lines wanted = fixture.tree_of_workspace();
  Lines different;
  std::set_symmetric_difference(applied.begin(), applied.end(), wanted.begin(), wanted.end(),
                                std::inserter(different, different.end()));
  CHECK(different == Lines{});
}

// Scripts that change a tree in random ways.
struct RandomEdits {
  const uint32_t seed = [] {
    const char* given = getenv("MOORAGE_TEST_SEED");
    return given ? static_cast<uint32_t>(atol(given)) : std::random_device()();
  }();
  std::mt19937 random{seed};

  size_t pick(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random); }

  std::string any_path(const std::string& tree) {
    std::vector<std::string> paths;
    for (auto it = fs::recursive_directory_iterator(tree); it != fs::end(it); ++it) {
      const std::string path = it->path().string().substr(tree.size() + 1);
      if (path == ".git") it.disable_recursion_pending();
      // Without .gitattributes, git reports windows.txt as changed or not depending on its time.
      if (path != ".git" && path != ".gitattributes") paths.push_back(path);
    }
    std::sort(paths.begin(), paths.end());
    return paths.empty() ? std::string("none") : paths[pick(paths.size())];
  }

  std::string script(const std::string& tree) {
    std::string script;
    for (int i = 0; i < 6; ++i) {
      const std::string path = "'" + any_path(tree) + "'";
      const std::string name = "$(dirname " + path + ")/" + "abc.o"[pick(3)];
      const std::string scripts[] = {
          "echo line >> " + path,
          "rm -rf " + path,
          "mv -T " + path + " " + name,
          "mv " + path + " .",
          "mkdir " + name,
          "ln -sfn target " + path,
          "chmod +x " + path,
          "rm -rf " + path + "; mkdir " + path + "; echo f > " + path + "/f",
          "echo new > " + name,
          "echo object > " + name + ".o",
          "cp -r " + path + " copy"};
      script += "(" + scripts[pick(std::size(scripts))] + ") 2>/dev/null || true\n";
    }
    return script;
  }
};

}  // namespace

TEST_CASE("a new workspace has no changes, even after files were only touched") {
  layers::in_own_namespace([] {
    ChangesFixture fixture(fill_small);
    CHECK(fixture.our_status().empty());
    CHECK(fixture.changes->patch(fixture.source).text.empty());
    edit(fixture, "touch README.md windows.txt; chmod g+w data; rm link; ln -s README.md link");
    edit(fixture, "mv src s; mv s src; mkdir -p src/empty");
    CHECK(fixture.our_status().empty());
    CHECK(fixture.changes->patch(fixture.source).text.empty());
    CHECK(fixture.changes->stat(fixture.source).empty());
  });
}

TEST_CASE("every kind of change is reported as in git, and the patch reproduces it") {
  layers::in_own_namespace([] {
    ChangesFixture fixture(fill_small);
    edit(fixture,
         "echo more >> README.md; chmod +x src/a.c; rm src/b.c; echo new > src/new.c;"
         "ln -sf data link; rm bin/run; ln -s ../data bin/run; printf '\\0\\377' > blob;"
         "printf 'line\\r\\nother\\r\\n' > windows.txt; printf '\\1\\0' >> data");
    CHECK(fixture.our_status() == Lines{"M README.md", "M data", "M link", "M src/a.c",
                                        "M windows.txt", "D src/b.c", "T bin/run", "? blob",
                                        "? src/new.c"});
    check_against_git(fixture);
    std::map<std::string, std::string> kinds;
    for (const DiffStat& one : fixture.changes->stat(fixture.source)) kinds[one.path] = one.change;
    CHECK(kinds["src/a.c"] == "mode");
    CHECK(kinds["src/new.c"] == "added");
    CHECK(kinds["bin/run"] == "type");
  });
}

TEST_CASE("removed, renamed and replaced directories are listed file by file") {
  layers::in_own_namespace([] {
    ChangesFixture fixture(fill_small);
    edit(fixture, "mv src source; echo x >> source/a.c; rm -r bin; mkdir -p data2; mv data data2/");
    check_against_git(fixture);
    edit(fixture, "rm README.md; mkdir README.md; echo f > README.md/f; mv source/deep deep");
    check_against_git(fixture);
    edit(fixture, "rm -r source; echo file > src; mkdir link.d; mv link.d bin");
    check_against_git(fixture);
    CHECK(fixture.our_status().contains("D src/deep/er/file"));
  });
}

TEST_CASE("ignored files are left out unless the commit contains them") {
  layers::in_own_namespace([] {
    ChangesFixture fixture(fill_small);
    edit(fixture,
         "echo x > a.o; mkdir build; echo x > build/out; echo changed > kept.o;"
         "mkdir sub; echo '!keep.o' > sub/.gitignore; echo x > sub/keep.o; echo x > sub/b.o");
    CHECK(fixture.our_status() == Lines{"M kept.o", "? sub/.gitignore", "? sub/keep.o"});
    check_against_git(fixture);
    edit(fixture, "mv src build/; echo '*.c' >> .gitignore");
    check_against_git(fixture);
    edit(fixture, "rm .gitignore");
    check_against_git(fixture);
  });
}

TEST_CASE("odd names survive in status and patch") {
  layers::in_own_namespace([] {
    ChangesFixture fixture(fill_small);
    for (const std::string name :
         {"new\nline", "quo\"te", "tab\t", "-dash", "\xff\xfe", " space ", "back\\slash",
          "sm\xc3\xb8rrebr\xc3\xb8"
          "d"}) {
      edit(fixture, "echo x > './" + name + "'");
    }
    edit(fixture, "echo x > " + std::string(255, 'n'));
    CHECK(fixture.our_status().size() == 9);
    check_against_git(fixture);
  });
}

TEST_CASE("a repository inside the workspace is one untracked entry, special files do not count") {
  layers::in_own_namespace([] {
    ChangesFixture fixture(fill_small);
    edit(fixture, "git init -q vendor; echo x > vendor/file; mkfifo fifo; rm data; mkfifo data");
    CHECK(fixture.our_status() == Lines{"? vendor/", "D data"});
    const Patch patch = fixture.changes->patch(fixture.source);
    CHECK(patch.text.find("vendor") == std::string::npos);
    REQUIRE(patch.left_out.size() == 1);
    CHECK(patch.left_out[0].path == "vendor/");
    CHECK(patch.left_out[0].why == repo_cache::LeftOut::kNested);
  });
}

TEST_CASE("a chain of frozen layers gives the sum of its changes") {
  layers::in_own_namespace([] {
    ChangesFixture fixture(fill_small);
    edit(fixture, "mv src one; echo 1 >> README.md; echo x > new");
    fixture.freeze();
    edit(fixture, "mv one/deep two; rm new; mkdir new; echo y > new/y");
    fixture.freeze();
    edit(fixture, "mv two/er er; rm -r one; mkdir src; echo again > src/a.c");
    check_against_git(fixture);
  });
}

TEST_CASE("patch and status agree with git after random edits") {
  RandomEdits random;
  INFO("MOORAGE_TEST_SEED=" << random.seed);
  layers::in_own_namespace([&] {
    ChangesFixture fixture(fill_small);
    for (int round = 0; round < 8; ++round) {
      const std::string script = random.script(fixture.tree);
      INFO(script);
      edit(fixture, script);
      check_against_git(fixture);
      if (random.pick(3) == 0) fixture.freeze();
    }
  });
}

TEST_CASE("changes after a rebase are those from the new commit, as in git") {
  layers::in_own_namespace([&] {
    ChangesFixture fixture(fill_small);
    edit(fixture, "echo mine >> src/a.c; echo new > src/new.c; rm data");
    fixture.commit_upstream(
        "echo theirs >> src/b.c; git rm -q README.md link; mkdir docs; echo d > docs/d; "
        "mv src/deep deep; echo '*.tmp' > .gitignore; chmod -x bin/run; rm kept.o; "
        "echo x > docs/x.tmp");
    edit(fixture, "git stash -q -u && git reset -q --hard FETCH_HEAD && git stash pop -q");
    CHECK(fixture.our_status() == Lines{"M src/a.c", "? src/new.c", "D data"});
    check_against_git(fixture);
    CHECK(fixture.changes->patch(fixture.source, {.only = {"src/a.c"}}).text.find("+mine") !=
          std::string::npos);
    edit(fixture, "git checkout -q HEAD -- . && git clean -q -f -d");
    CHECK(fixture.our_status() == Lines{});
    CHECK(fixture.changes->patch(fixture.source).text.empty());
    fixture.freeze();
    edit(fixture, "rm -r docs; mv deep src/deep; echo again > README.md; echo t > t.tmp");
    check_against_git(fixture);
  });
}

TEST_CASE("a directory that upstream made a submodule is unchanged, and the other way round") {
  layers::in_own_namespace([&] {
    ChangesFixture fixture(fill_small);
    const std::string submodule =
        "git rm -q -r src/deep; mkdir src/deep; "
        "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),src/deep";
    fixture.commit_upstream(submodule);
    edit(fixture, "git reset -q --hard FETCH_HEAD; echo mine >> src/a.c");
    CHECK(fixture.our_status() == Lines{"M src/a.c"});
    check_against_git(fixture);
  });
  layers::in_own_namespace([&] {
    ChangesFixture fixture([](const std::string& root) {
      fill_small(root);
      fs::create_directories(root + "/sub");
      base::ProcessOptions options;
      options.directory = root;
      const base::ProcessResult made =
          base::run_process({"git", "update-index", "--add", "--cacheinfo",
                             "160000," + std::string(40, '1') + ",sub"},
                            options);
      REQUIRE(made.ok());
    });
    CHECK(fixture.our_status() == Lines{});
    fixture.commit_upstream("git rm -q --cached sub; echo file > sub/file");
    edit(fixture, "git reset -q --hard FETCH_HEAD");
    CHECK(fixture.our_status() == Lines{});
    edit(fixture, "echo mine >> sub/file; echo new > sub/new");
    CHECK(fixture.our_status() == Lines{"M sub/file", "? sub/new"});
    check_against_git(fixture);
  });
}

TEST_CASE("a base that moved without its files shows what they lack") {
  layers::in_own_namespace([&] {
    ChangesFixture fixture(fill_small);
    fixture.commit_upstream(
        "echo theirs >> src/b.c; rm README.md kept.o; echo n > n; rm -r bin; "
        "echo file > bin; rm -r src/deep/er; ln -s .. src/deep/er");
    edit(fixture, "git reset -q FETCH_HEAD");
    check_against_git(fixture);
    CHECK(fixture.our_status().contains("D n"));
    CHECK(fixture.our_status().contains("? README.md"));
    CHECK_FALSE(fixture.our_status().contains("? kept.o"));  // ignored
  });
}

TEST_CASE("patch and status agree with git after random edits and a random new base") {
  RandomEdits random;
  INFO("MOORAGE_TEST_SEED=" << random.seed);
  for (int round = 0; round < 6; ++round) {
    layers::in_own_namespace([&] {
      ChangesFixture fixture(fill_small);
      std::string script = random.script(fixture.tree);
      INFO("before: " << script);
      edit(fixture, script);
      const std::string upstream = random.script(fixture.directory.path() + "/origin");
      INFO("upstream: " << upstream);
      fixture.commit_upstream(upstream);
      const std::string way = random.pick(2) == 0 ? "--mixed" : "--hard";
      INFO("reset " << way);
      edit(fixture, "git reset -q " + way + " FETCH_HEAD");
      check_against_git(fixture);
      if (random.pick(2) == 0) fixture.freeze();
      script = random.script(fixture.tree);
      INFO("after: " << script);
      edit(fixture, script);
      check_against_git(fixture);
    });
  }
}

TEST_CASE("a tree can be read while it changes, and nothing outside it is read") {
  layers::in_own_namespace([] {
    ChangesFixture fixture(fill_small);
    edit(fixture, "mkdir churn; for i in 1 2 3 4 5 6 7 8 9; do echo $i > churn/$i; done");
    std::atomic<bool> stop{false};
    std::thread churner([&] {
      const std::string upper = fixture.source.uppers.front();
      while (!stop) {
        rename((upper + "/churn").c_str(), (upper + "/away").c_str());
        if (symlink("/etc", (upper + "/churn").c_str()) == 0) unlink((upper + "/churn").c_str());
        rename((upper + "/away").c_str(), (upper + "/churn").c_str());
      }
    });
    int patches = 0;
    for (int i = 0; i < 200; ++i) {
      for (const Change& change : fixture.changes->status(fixture.source).changes) {
        CHECK(change.path.find("passwd") == std::string::npos);
      }
      try {
        const std::string patch = fixture.changes->patch(fixture.source).text;
        CHECK(patch.find("root:") == std::string::npos);
        ++patches;
      } catch (const base::Error& error) {
        CHECK(error.code() == base::Code::conflict);
      }
    }
    stop = true;
    churner.join();
    CHECK(patches > 0);
  });
}

TEST_CASE("limits are enforced and reported") {
  layers::in_own_namespace([] {
    ChangesFixture fixture(fill_small);
    edit(fixture, "for i in 1 2 3 4 5; do echo $i > new$i; done; head -c 100000 /dev/zero > zero");
    ChangeList list = fixture.changes->status(fixture.source, 3);
    CHECK(list.changes.size() == 3);
    CHECK(list.truncated);
    CHECK(fixture.changes->patch(fixture.source, {.max_bytes = 50'000}).left_out.size() == 1);
    CHECK(fixture.changes->patch(fixture.source, {.max_bytes = 1'000'000}).left_out.empty());
  });
}

TEST_CASE("paths beyond the budget are left out and reported; a count needs no budget") {
  layers::in_own_namespace([] {
    ChangesFixture fixture(fill_small);
    edit(fixture,
         "n=$(printf %0200d 7); for i in 1 2 3 4 5 6 7 8 9; do mkdir $n; cd $n; done\n"
         "i=0; while [ $i -lt 300 ]; do : > $i; i=$((i+1)); done");
    CHECK(fixture.changes->status(fixture.source).changes.size() == 300);
    const Changes small(*fixture.repos, {.max_memory_bytes = 200'000});
    const ChangeList list = small.status(fixture.source);
    CHECK(list.truncated);
    CHECK(list.changes.size() > 10);
    CHECK(list.changes.size() < 100);
    CHECK_THROWS_AS(small.patch(fixture.source), base::Error);
    CHECK_THROWS_AS(small.stat(fixture.source), base::Error);
    CHECK(small.count(fixture.source).files == 300);
    CHECK_FALSE(small.count(fixture.source).truncated);

    edit(fixture, "i=0; while [ $i -lt 300 ]; do mkdir d$i; : > d$i/f; i=$((i+1)); done");
    CHECK(Changes(*fixture.repos, {.max_memory_bytes = 20'000}).count(fixture.source).truncated);
    const Changes hasty(*fixture.repos, {.walk_time = std::chrono::milliseconds(0)});
    CHECK(hasty.status(fixture.source).truncated);
  });
}

TEST_CASE("large ignore files and a renamed base directory count against the budget") {
  layers::in_own_namespace([] {
    ChangesFixture fixture(fill_small);
    edit(fixture, "mkdir ig; yes a | head -c 400000 > ig/.gitignore; : > ig/file");
    const auto truncated = [&fixture](uint64_t bytes) {
      return Changes(*fixture.repos, {.max_memory_bytes = bytes}).count(fixture.source).truncated;
    };
    CHECK(truncated(1 << 20));
    CHECK_FALSE(truncated(64 << 20));
    edit(fixture, "rm -r ig; n=$(printf %0200d 7); mkdir -p $n/$n/$n/$n; mv src $n/$n/$n/$n/src");
    CHECK(truncated(6'000));
    CHECK_FALSE(truncated(1 << 20));
  });
}

TEST_CASE("rules of .gitattributes and file contents count against the budget") {
  layers::in_own_namespace([] {
    ChangesFixture fixture(fill_small);
    edit(fixture, "echo more >> README.md; touch windows.txt; yes 'a text' | head -c 900000 > at");
    CHECK(fixture.our_status() == fixture.status_of_git());
    edit(fixture, "mv at src/.gitattributes");
    CHECK_FALSE(fixture.changes->status(fixture.source).truncated);  // no file comparison uses it
    CHECK_THROWS_AS(fixture.changes->stat(fixture.source), base::Error);
    CHECK_THROWS_AS(fixture.changes->patch(fixture.source), base::Error);
    edit(fixture, "rm src/.gitattributes");

    base::LookMemory others(base::kAllLooksBytes);
    REQUIRE(others.take(base::kAllLooksBytes - 20'000));
    ChangeList list = fixture.changes->status(fixture.source);
    CHECK_FALSE(list.truncated);
    CHECK(list.changes.size() == 1);
    edit(fixture, "yes | tr -d '\\n' | head -c 30000 > new");
    auto stats = fixture.changes->stat(fixture.source);
    REQUIRE(stats.size() == 2);
    CHECK(stats[1].path == "new");
    CHECK(stats[1].binary);
    CHECK(stats[1].bytes_after == 30'000);
    CHECK_THROWS_AS(fixture.changes->patch(fixture.source), base::Error);
    others.give(1 << 20);
    CHECK_FALSE(fixture.changes->stat(fixture.source)[1].binary);
    CHECK(base::LookMemory::all_used_bytes() == others.used_bytes());
  });
}

TEST_CASE("status reports rules of the commit that exceed the budget, and does not retry") {
  layers::in_own_namespace([] {
    ChangesFixture fixture([](const std::string& root) {
      fill_small(root);
      std::string rules;
      for (int n = 0; n < 100'000; ++n) rules += "a text\n";
      put(root + "/.gitattributes", rules);
    });
    CHECK_FALSE(fixture.changes->status(fixture.source).truncated);
    edit(fixture, "touch README.md; echo >> bin/run");
    const ChangeList list = fixture.changes->status(fixture.source);
    CHECK(list.truncated);
    REQUIRE(list.changes.size() == 1);
    CHECK(list.changes[0].path == "bin/run");
    CHECK(fixture.changes->count(fixture.source).truncated);
    CHECK_THROWS_AS(fixture.changes->patch(fixture.source), base::Error);
  });
}

TEST_CASE("ten changed files in a tree of 78,000 take milliseconds", "[.measure]") {
  layers::in_own_namespace([] {
    ChangesFixture fixture([](const std::string& root) {
      for (int i = 0; i < 78'000; ++i) {
        put(root + "/d" + std::to_string(i / 2000) + "/e" + std::to_string(i / 50 % 40) + "/f" +
                std::to_string(i),
            "content of " + std::to_string(i) + "\n");
      }
    });
    for (int i = 0; i < 10; ++i) {
      edit(fixture, "echo more >> $(ls -d d" + std::to_string(i * 3) + "/e7/f* | head -1)");
    }
    for (const bool patch : {false, true}) {
      std::vector<double> times;
      for (int i = 0; i < 50; ++i) {
        auto start = std::chrono::steady_clock::now();
        if (patch) {
          CHECK(fixture.changes->patch(fixture.source).text.size() > 1000);
        } else {
          CHECK(fixture.changes->status(fixture.source).changes.size() == 10);
        }
        times.push_back(
            std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
                .count());
      }
      std::sort(times.begin(), times.end());
      std::cout << (patch ? "patch" : "status") << ": p50 " << times[25] << " ms, p99 " << times[49]
                << " ms\n";
    }
  });
}

}  // namespace moorage::workspace
