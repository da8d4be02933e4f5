// Compares frozen copies of a layer with the layer itself.
#include "layers/copy.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <thread>

#include "layers/copy_record.h"
#include "layers/storage_fixture.h"
#include "layers/tree_manifest.h"

using namespace moorage;
using namespace moorage::layers;

namespace fs = std::filesystem;

namespace {

const LayerCopy::Mapped kNothingMapped = [] { return std::set<ino_t>{}; };

struct Layers {
  TemporaryDirectory directory;
  int next = 0;

  std::string make() {
    const std::string layer = directory.path() + "/ly_" + std::to_string(++next);
    for (const char* part : {"/tree/upper", "/home/upper", "/system/upper"})
      fs::create_directories(layer + part);
    return layer;
  }
};

void write(const std::string& path, const std::string& bytes) { base::write_file(path, bytes); }

std::map<std::string, std::string> seen(const std::string& layer) {
  std::map<std::string, std::string> all;
  for (const char* part : {"tree", "home", "system"}) {
    const TreeManifest manifest(layer + "/" + part + "/upper", {.link_counts = false});
    for (const auto& [path, line] : manifest.lines) all[part + ("/" + path)] = line;
  }
  return all;
}

void require_same(const std::string& live, const std::string& copy) {
  const auto want = seen(live);
  const auto got = seen(copy);
  for (const auto& [path, line] : want) {
    INFO(path);
    REQUIRE(got.count(path) == 1);
    REQUIRE(got.at(path) == line);
  }
  REQUIRE(got.size() == want.size());
}

void pause_past_a_tick() { std::this_thread::sleep_for(std::chrono::milliseconds(45)); }

}  // namespace

TEST_CASE("a copy has everything that a layer can have") {
  Layers layers;
  const std::string live = layers.make();
  const std::string tree = live + "/tree/upper";
  fs::create_directories(tree + "/a/b/c");
  write(tree + "/a/file", "content");
  base::check(link((tree + "/a/file").c_str(), (tree + "/a/b/same").c_str()), "link");
  base::check(chown((tree + "/a/file").c_str(), 12345, 54321), "chown");
  base::check(chmod((tree + "/a/file").c_str(), 04751), "chmod");
  fs::create_symlink("../a/gone", tree + "/a/link");
  base::check(lchown((tree + "/a/link").c_str(), 12345, 54321), "lchown");
  base::check(mknod((tree + "/a/whiteout").c_str(), S_IFCHR, makedev(0, 0)), "mknod");
  base::check(mkfifo((tree + "/a/fifo").c_str(), 0640), "mkfifo");
  base::check(mknod((tree + "/a/socket").c_str(), S_IFSOCK | 0755, 0), "mknod");
  base::check(setxattr((tree + "/a/b").c_str(), "trusted.overlay.opaque", "y", 1, 0), "setxattr");
  base::check(setxattr((tree + "/a").c_str(), "trusted.overlay.redirect", "/old", 4, 0),
              "setxattr");
  base::check(setxattr((tree + "/a/file").c_str(), "user.note", "n\0te", 4, 0), "setxattr");
  base::check(setxattr(tree.c_str(), "user.of-the-root", "yes", 3, 0), "setxattr");
  {
    const base::Fd sparse = base::open_file(tree + "/sparse", O_WRONLY | O_CREAT, 0600);
    base::check(pwrite(sparse.get(), "x", 1, 64 << 20), "pwrite");
    base::check(ftruncate(sparse.get(), 200 << 20), "ftruncate");
  }
  write(tree + "/a/odd \n\xff name", "");
  write(live + "/home/upper/.profile", "home");
  write(live + "/system/upper/etc", "system");
  const timespec old[2] = {{1, 2}, {3, 4}};
  base::check(utimensat(AT_FDCWD, (tree + "/a/b").c_str(), old, 0), "utimensat");

  const std::string copy = layers.make();
  LayerCopy copying({live, copy}, kNothingMapped);
  const CopyPass pass = copying.finish();
  CHECK(pass.copied_files == 5);
  CHECK(pass.copied_bytes < 1 << 20);
  require_same(live, copy);
}

TEST_CASE("a later pass copies only changes, and the next copy shares the rest") {
  Layers layers;
  const std::string live = layers.make();
  const std::string tree = live + "/tree/upper";
  for (int i = 0; i < 100; ++i) {
    fs::create_directories(tree + "/d" + std::to_string(i % 10));
    write(tree + "/d" + std::to_string(i % 10) + "/f" + std::to_string(i), std::to_string(i));
  }
  pause_past_a_tick();
  const std::string copy = layers.make();
  LayerCopy copying({live, copy}, kNothingMapped);
  CHECK(copying.pass().copied_files == 100);
  write(tree + "/d1/f1", "new");
  fs::rename(tree + "/d2", tree + "/moved");
  fs::remove_all(tree + "/d3");
  const CopyPass last = copying.finish();
  CHECK(last.copied_files == 11);
  CHECK(last.removed == 3);
  copying.keep_record();
  require_same(live, copy);

  pause_past_a_tick();
  write(tree + "/d4/f4", "newer");
  const std::string second = layers.make();
  LayerCopy again({live, second, copy}, kNothingMapped);
  const CopyPass pass = again.finish();
  CHECK(pass.copied_files <= 2);  // f4; and f1, if its change was too recent when it was copied
  CHECK(pass.copied_files + pass.linked_files == 90);
  require_same(live, second);
  struct stat one {
  }, other{};
  base::check(stat((copy + "/tree/upper/d5/f5").c_str(), &one), "stat");
  base::check(stat((second + "/tree/upper/d5/f5").c_str(), &other), "stat");
  CHECK(one.st_ino == other.st_ino);
  // Without its record, or with a damaged one, nothing is shared and nothing is lost.
  for (const char* damaged : {"", "moorage copy 1\nx", "moorage copy 1\na\0b 1\n"}) {
    write(second + "/tree/copied", damaged);
    const std::string third = layers.make();
    LayerCopy alone({live, third, second}, kNothingMapped);
    CHECK(alone.finish().linked_files == 0);
    require_same(live, third);
  }
}

TEST_CASE("a file written through a mapping is copied although its time does not change") {
  Layers layers;
  const std::string live = layers.make();
  const std::string path = live + "/tree/upper/mapped";
  write(path, std::string(8192, 'a'));
  const base::Fd file = base::open_file(path, O_RDWR);
  auto* bytes =
      static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
  REQUIRE(bytes != MAP_FAILED);
  bytes[0] = 'b';  // the page is dirty now, so further writes change no time
  pause_past_a_tick();
  const std::string copy = layers.make();
  struct stat status {};
  base::check(stat(path.c_str(), &status), "stat");
  LayerCopy copying({live, copy}, [&] { return std::set<ino_t>{status.st_ino}; });
  copying.pass();
  bytes[1] = 'c';
  copying.finish();
  CHECK(base::read_file(copy + "/tree/upper/mapped").substr(0, 3) == "bca");
  munmap(bytes, 8192);
}

TEST_CASE("a file whose mapping ends before the last pass is copied again") {
  Layers layers;
  const std::string live = layers.make();
  const std::string path = live + "/tree/upper/mapped";
  write(path, std::string(8192, 'a'));
  struct stat status {};
  base::check(stat(path.c_str(), &status), "stat");
  const auto map = [&] {
    const base::Fd file = base::open_file(path, O_RDWR);
    void* bytes = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    REQUIRE(bytes != MAP_FAILED);
    return static_cast<char*>(bytes);
  };
  std::set<ino_t> mapped;
  const std::string copy = layers.make();

  SECTION("an earlier check found it") {
    char* bytes = map();
    bytes[0] = 'b';
    pause_past_a_tick();
    mapped = {status.st_ino};
    LayerCopy copying({live, copy}, [&] { return mapped; });
    copying.pass();
    bytes[1] = 'c';
    munmap(bytes, 8192);
    mapped.clear();
    copying.finish();
  }
  SECTION("no check found it") {
    char* bytes = nullptr;
    LayerCopy copying({live, copy}, [&] {
      if (!bytes) {  // right after the first check, and a tick before the file is copied
        bytes = map();
        pause_past_a_tick();
        bytes[0] = 'b';
        pause_past_a_tick();
      }
      return std::set<ino_t>{};
    });
    copying.pass();
    bytes[1] = 'c';
    munmap(bytes, 8192);
    copying.finish();
  }
  CHECK(base::read_file(copy + "/tree/upper/mapped").substr(0, 3) == "bca");
}

TEST_CASE("exceeding a limit of a copy is an error") {
  Layers layers;
  const std::string live = layers.make();
  for (int i = 0; i < 20; ++i) write(live + "/tree/upper/" + std::to_string(i), "");
  LayerCopy few({live, layers.make()}, kNothingMapped, {.max_entries = 10});
  CHECK_THROWS_WITH(few.pass(), Catch::Contains("more than 10 changed files"));
  std::string deep = live + "/home/upper";
  for (int i = 0; i < 950; ++i) deep += "/d";
  fs::create_directories(deep);
  LayerCopy nested({live, layers.make()}, kNothingMapped);
  CHECK_THROWS_WITH(nested.pass(), Catch::Contains("nested deeper"));
}

TEST_CASE("a record survives a round trip, and other text is rejected") {
  RecordedDirectory root;
  root.entries["a\nb"] = {7, 8, nullptr};
  root.entries["d"] = {9, 0, std::make_unique<RecordedDirectory>()};
  root.entries["d"].directory->entries["x"] = {18446744073709551615ULL, -5, nullptr};
  const std::string text = format_record(root);
  const auto back = parse_record(text);
  REQUIRE(back);
  CHECK(format_record(*back) == text);
  for (size_t length = 0; length < text.size(); ++length)
    CHECK(!parse_record(text.substr(0, length)));
  CHECK(!parse_record(text + "x"));
}

namespace {

// Random changes of one layer, as commands make them.
class Changes {
 public:
  Changes(std::string top, unsigned seed) : top_(std::move(top)), random_(seed) {}
  void change() {
    const std::string path = pick();
    std::error_code ignored;
    switch (random_() % 10) {
      case 0:
      case 1:
        fs::create_directories(fs::path(path).parent_path(), ignored);
        std::ofstream(path) << std::string(random_() % 5000, 'x');
        break;
      case 2:
        append(path);
        break;
      case 3:
        fs::create_directories(path, ignored);
        break;
      case 4:
      case 5:
        fs::rename(path, pick(), ignored);
        break;
      case 6:
        fs::remove_all(path, ignored);
        break;
      case 7:
        fs::create_hard_link(path, pick(), ignored);
        break;
      case 8:
        fs::create_symlink("to " + path, path, ignored);
        break;
      default:
        if (fs::exists(fs::symlink_status(path, ignored)) && !fs::is_symlink(path, ignored))
          fs::permissions(path, fs::perms(0600 | (random_() & 0177)), ignored);
        break;
    }
  }

 private:
  std::string pick() {
    std::string path = top_;
    for (unsigned depth = 1 + random_() % 4; depth > 0; --depth)
      path += "/" + std::string(1, static_cast<char>('a' + random_() % 5));
    return path;
  }
  // Keeps the size: only the change time shows the change.
  void append(const std::string& path) {
    const int file = open(path.c_str(), O_WRONLY | O_NOFOLLOW);
    if (file < 0) return;
    const char byte = static_cast<char>('a' + random_() % 26);
    [[maybe_unused]] auto written = pwrite(file, &byte, 1, 0);
    close(file);
  }

  const std::string top_;
  std::mt19937 random_;
};

}  // namespace

TEST_CASE("a copy of a constantly changing layer equals its frozen state") {
  const char* given = getenv("MOORAGE_TEST_SEED");
  const unsigned seed = given ? static_cast<unsigned>(std::stoul(given)) : std::random_device{}();
  std::cout << "layer copies: MOORAGE_TEST_SEED=" << seed << std::endl;
  Layers layers;
  const std::string live = layers.make();
  std::string earlier;
  uint64_t linked = 0;
  for (unsigned round = 0; round < 60; ++round) {
    const std::string copy = layers.make();
    LayerCopy copying({live, copy, earlier}, kNothingMapped);
    std::atomic<bool> frozen{false};
    std::jthread writer([&](const std::stop_token& left) {
      Changes changes(live + "/tree/upper", seed + round);
      for (int i = 0; i < 40 || !(frozen || left.stop_requested()); ++i) changes.change();
    });
    linked += copying.pass().linked_files;
    linked += copying.pass().linked_files;
    frozen = true;
    writer.join();
    linked += copying.finish().linked_files;
    if (round % 3 != 0) copying.keep_record();
    INFO("round " << round);
    require_same(live, copy);
    if (round % 4 == 0) pause_past_a_tick();
    earlier = round % 5 == 4 ? "" : copy;
  }
  CHECK(linked > 0);
}
