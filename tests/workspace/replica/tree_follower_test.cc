// A followed tree is restored exactly from its packs.
#include "workspace/replica/tree_follower.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>

#include "layers/storage_fixture.h"
#include "packs/delta_pack.h"
#include "packs/tar_fixture.h"
#include "packs/tree_restorer.h"
#include "sanitized.h"

using namespace moorage;
using namespace moorage::packs;
using namespace moorage::workspace;

namespace fs = std::filesystem;

namespace {

constexpr uint32_t kIds = 65537;

base::Fd file_of(const std::string& bytes) {
  base::Fd file = unnamed_file();
  base::write_all(file.get(), bytes);
  return file;
}

// A tree, its record, and its packs.
struct Followed {
  TemporaryDirectory directory;
  std::string live = directory.path() + "/live";
  FollowedTree tree{{{"tree", live}}, {}, {}, {}};
  state_db::SeenDatabase seen{directory.path()};
  std::unique_ptr<TreeRecord> record = std::make_unique<TreeRecord>(seen);
  std::vector<std::string> packs;

  Followed() { fs::create_directory(live); }

  FollowResult follow() {
    std::string bytes;
    const auto result = follow([&](std::string_view piece) { bytes += piece; });
    if (!bytes.empty()) packs.push_back(bytes);
    return result;
  }
  FollowResult follow(const PackWriter::Sink& sink) {
    std::unique_ptr<PackWriter> pack;
    const auto made = [&]() -> PackWriter& {
      if (!pack) pack = std::make_unique<PackWriter>(sink);
      return *pack;
    };
    const auto result = TreeFollower(tree, *record, made, [] {}).follow();
    if (pack) pack->finish();
    return result;
  }
  // Rebuilds the record as the next daemon does.
  void reload() {
    record = std::make_unique<TreeRecord>(seen);
    for (const auto& pack : packs) {
      PackReader(file_of(pack)).read_list([&](std::string_view part) { record->read(part); });
      record->end_of_list();
    }
  }
  std::string restored(const std::string& name) {
    const std::string top = directory.path() + "/" + name;
    fs::create_directory(top);
    const TreePlaces places{{{"tree", top}}, 0, kIds, {}};
    TreeRestorer restorer(places);
    for (const auto& pack : packs) {
      const PackReader reader(file_of(pack));
      reader.verify();
      reader.read_changes(restorer);
    }
    restorer.finish();
    return top;
  }
};

// Waits until no file is in doubt: change times cannot be set.
void settle() { usleep(2'100'000); }

}  // namespace

TEST_CASE("a changing tree is restored exactly after each round, also by the next daemon") {
  const char* given = getenv("MOORAGE_TEST_SEED");
  const unsigned seed = given ? static_cast<unsigned>(std::stoul(given)) : std::random_device{}();
  std::cout << "MOORAGE_TEST_SEED=" << seed << "\n";
  std::mt19937 random(seed);
  Followed followed;
  const auto path = [&] {
    std::string made = followed.live;
    // In walk order: the contents of "a" before "a-", and "objects" last.
    constexpr std::array kNames{"a", "a-", "objects", "p"};
    for (unsigned depth = 1 + random() % 3; depth > 0; --depth)
      made += "/" + std::string(kNames.at(random() % kNames.size()));
    return made;
  };
  std::error_code ignored;
  for (int round = 0; round < 60; ++round) {
    for (unsigned edits = random() % 12; edits > 0; --edits) {
      const std::string one = path();
      const std::string other = path();
      switch (random() % 8) {
        case 0:
        case 1:
          fs::create_directories(fs::path(one).parent_path(), ignored);
          std::ofstream(one) << std::string(random() % 3000, static_cast<char>('a' + random() % 9));
          break;
        case 2:
          fs::create_directories(one, ignored);
          break;
        case 3:
          fs::remove_all(one, ignored);
          break;
        case 4:
          fs::rename(one, other, ignored);
          break;
        case 5:
          if (fs::is_regular_file(fs::symlink_status(one, ignored)))
            fs::create_hard_link(one, other, ignored);
          break;
        case 6:
          fs::create_symlink("nowhere", one, ignored);
          break;
        default:
          setxattr(one.c_str(), "user.mark", &round, sizeof round, 0);
          chmod(one.c_str(), 0700 | (random() & 077));
      }
    }
    followed.follow();
    if (random() % 3 == 0) followed.reload();
    const std::string restored = followed.restored("round-" + std::to_string(round));
    const TreeManifest want(followed.live, {});
    const TreeManifest got(restored, {});
    INFO("round " << round);
    REQUIRE(want.lines == got.lines);
    fs::remove_all(restored);
  }
}

TEST_CASE("old unchanged files are not sent again, and a journal sends only additions") {
  Followed followed;
  followed.tree.grows = [](std::string_view path) { return path.ends_with("output"); };
  const std::string output = followed.live + "/output";
  base::write_file(output, std::string(500'000, 'x'));
  base::write_file(followed.live + "/file", "content");
  followed.follow();
  settle();
  followed.follow();
  followed.reload();
  const size_t packs = followed.packs.size();
  CHECK(followed.follow().changes == 0);
  CHECK(followed.packs.size() == packs);
  {
    const base::Fd file = base::open_file(output, O_WRONLY | O_APPEND);
    base::write_all(file.get(), "added");
  }
  CHECK(followed.follow().changes == 1);
  CHECK(followed.packs.back().size() < 500);
  CHECK(base::read_file(followed.restored("back") + "/output") == base::read_file(output));
}

TEST_CASE("later list lines win, and a removed or replaced directory loses its contents") {
  TemporaryDirectory directory;
  state_db::SeenDatabase seen(directory.path());
  TreeRecord record(seen);
  const auto line = [&](const std::string& path, const std::string& facts) {
    record.read(path + std::string(1, '\0') + facts + "\n");
  };
  const auto known = [&] {
    std::vector<std::string> paths;
    record.seen().start_walk();
    while (const auto entry = record.seen().rest()) paths.push_back(entry->path);
    return paths;
  };
  // The older form: parts in another order, pass by pass, removals at the end.
  line("tree", "1 5 0 d");
  line("tree/a", "2 5 0 d");
  line("tree/a/b", "3 5 0 d");
  line("tree/a/b/c", "4 5 9 l");
  line("tree/a-", "5 5 0 d");
  line("tree/a-/x", "6 5 0 ");
  line("tree/objects", "7 5 0 d");
  line("tree/p", "8 5 0 ");
  line("home", "9 5 0 d");
  record.end_of_list();
  CHECK(known() == std::vector<std::string>{"home", "tree", "tree/a", "tree/a/b", "tree/a/b/c",
                                            "tree/a-", "tree/a-/x", "tree/p", "tree/objects"});
  CHECK(record.seen().find("tree/a/b/c")->linked);
  line("tree/a-", "10 0 0 ");
  line("tree/a/b", "-");
  record.end_of_list();
  line("tree/a-", "11 5 0 d");
  line("tree/a/b", "12 5 0 d");
  record.end_of_list();
  CHECK(known() == std::vector<std::string>{"home", "tree", "tree/a", "tree/a/b", "tree/a-",
                                            "tree/p", "tree/objects"});
  CHECK(record.seen().find("tree/a-")->inode == 11);
  std::string listed;
  record.end_round([&](std::string_view part) { listed += part; });
  CHECK(listed.empty());  // the packs have it already
  CHECK_THROWS_AS(line("tree/x", "odd"), base::Error);
}

// Memory in kB that `work` adds to a process of its own, with a file system in memory for its
// temporary files.
long peak_growth(const std::function<void()>& work) {
  const TemporaryDirectory place;
  void* const shared =
      mmap(nullptr, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  const pid_t child = fork();
  if (child == 0) {
    try {
      base::check(unshare(CLONE_NEWNS), "unshare");
      base::set_propagation_private("/");
      base::check(mount("tmpfs", place.path().c_str(), "tmpfs", 0, nullptr), "mount");
      setenv("TMPDIR", place.path().c_str(), 1);
      rusage before{};
      getrusage(RUSAGE_SELF, &before);
      work();
      rusage after{};
      getrusage(RUSAGE_SELF, &after);
      *static_cast<long*>(shared) = after.ru_maxrss - before.ru_maxrss;
    } catch (const std::exception& error) {
      std::cout << error.what() << std::endl;
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  const long growth = *static_cast<long*>(shared);
  munmap(shared, sizeof(long));
  return growth;
}

TEST_CASE("memory does not grow with the present, former and linked names of a tree") {
  const long growth = peak_growth([] {
    constexpr uint64_t kNames = 150'000;
    const std::string stem(200, 'n');
    Followed followed;
    for (const char* name : {"/many", "/more"}) fs::create_directory(followed.live + name);
    const base::Fd many = base::open_directory(followed.live + "/many");
    const base::Fd more = base::open_directory(followed.live + "/more");
    const auto name_of = [&](uint64_t n) { return stem + std::to_string(n); };
    for (uint64_t n = 0; n < kNames; ++n) {
      const std::string name = name_of(n);
      base::check(mknodat(many.get(), name.c_str(), S_IFREG | 0644, 0), "make a file");
      if (n % 5 == 0)
        base::check(linkat(many.get(), name.c_str(), more.get(), name.c_str(), 0), "link a file");
    }
    std::vector<base::Fd> packs;
    const auto round = [&] {
      packs.push_back(unnamed_file());
      return followed.follow(
          [&](std::string_view piece) { base::write_all(packs.back().get(), piece); });
    };
    const auto require = [](bool holds, const char* what) {
      if (!holds) throw base::Error(base::Code::internal, what);
    };
    require(round().changes >= kNames + kNames / 5, "all are sent");
    for (uint64_t n = 0; n < kNames; n += 2)
      base::check(unlinkat(many.get(), name_of(n).c_str(), 0), "remove a file");
    require(round().removals == kNames / 2, "every removed name is listed");
    followed.record = std::make_unique<TreeRecord>(followed.seen);
    for (auto& pack : packs) {
      PackReader(base::Fd(dup(pack.get()))).read_list([&](std::string_view part) {
        followed.record->read(part);
      });
      followed.record->end_of_list();
    }
    settle();
    round();
    packs.pop_back();
    const FollowResult last = round();
    require(last.changes == 0 && last.removals == 0, "all are known");
  });
  std::cout << "memory grew by " << growth << " kB\n";
  CHECK((test::kSanitized || growth < 40 << 10));
}

TEST_CASE("a journal whose middle is removed is copied with the mark") {
  Followed followed;
  followed.tree.grows = [](std::string_view path) { return path.ends_with("output"); };
  const std::string output = followed.live + "/output";
  base::write_file(output, std::string(500'000, 'x'));
  followed.follow();
  {
    const base::Fd file = base::open_file(output, O_WRONLY);
    REQUIRE(pwrite(file.get(), "the mark", 8, 100'000) == 8);
    REQUIRE(fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100'008, 300'000) ==
            0);
    REQUIRE(pwrite(file.get(), "added", 5, 500'000) == 5);
  }
  followed.follow();
  const std::string now = base::read_file(output);
  const std::string back = base::read_file(followed.restored("back") + "/output");
  CHECK(back.substr(0, 100'008) == now.substr(0, 100'008));
  CHECK(back.substr(400'008) == now.substr(400'008));
}

TEST_CASE("a mapped file is sent in each round, and git objects after their references") {
  Followed followed;
  base::write_file(followed.live + "/mapped", "content");
  for (const char* name : {"/objects", "/refs"}) fs::create_directory(followed.live + name);
  base::write_file(followed.live + "/objects/one", "1");
  base::write_file(followed.live + "/refs/one", "1");
  followed.follow();
  struct Order : PackVisitor {
    std::vector<std::string> paths;
    void entry(const Node& entry) override { paths.push_back(entry.path); }
    void growth(const std::string&) override {}
    void piece(uint64_t, std::string_view) override {}
    void end_pieces() override {}
    void removal(const std::string&) override {}
  } order;
  PackReader(file_of(followed.packs.at(0))).read_changes(order);
  REQUIRE(order.paths.size() >= 6);
  order.paths.resize(6);  // later passes repeat those too recent for the clock
  CHECK(order.paths == std::vector<std::string>{"tree", "tree/mapped", "tree/refs", "tree/refs/one",
                                                "tree/objects", "tree/objects/one"});
  struct stat status {};
  REQUIRE(stat((followed.live + "/mapped").c_str(), &status) == 0);
  followed.tree.mapped = {status.st_ino};
  settle();
  followed.follow();
  CHECK(followed.follow().changes == 1);
  followed.reload();
  CHECK(followed.follow().changes == 1);
  followed.tree.mapped.clear();
  CHECK(followed.follow().changes == 1);  // the last writes before it was unmapped
  CHECK(followed.follow().changes == 0);
}
