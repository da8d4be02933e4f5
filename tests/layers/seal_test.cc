#include "layers/seal/seal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "layers/seal/seal_list.h"
#include "layers/storage_fixture.h"

using namespace moorage;
using namespace moorage::layers;

namespace {

struct Layer : StorageFixture {
  std::string path = storage->layer_path(chain.writable);
  std::string top = path + "/tree/upper";
  std::string list_path = directory.path() + "/list";

  void put(const std::string& name, const std::string& bytes) const {
    base::write_file(top + "/" + name, bytes, 0644);
  }
  // Also writes its list to disk.
  Seal seal() const {
    SealListWriter list(list_path);
    Seal seal = take_seal(path, {}, [&](auto at, auto hash) { list.add(at, hash); });
    list.commit();
    return seal;
  }
  std::vector<std::string> differing_from(const Seal& before) const {
    SealListComparison comparison(list_path, 100'000);
    REQUIRE(comparison.has_list());
    const Seal now = take_seal(path, {}, [&](auto at, auto hash) { comparison.add(at, hash); });
    const auto differences = comparison.finish();
    CHECK(differences.count == differences.first.size());
    CHECK((now.hash == before.hash) == differences.first.empty());
    return differences.first;
  }
};

using Paths = std::vector<std::string>;

}  // namespace

TEST_CASE("a seal stays the same while nobody writes, even after a mount of the layer") {
  in_own_namespace([] {
    const Layer layer;
    layer.put("a", "a");
    const Seal seal = layer.seal();
    CHECK(seal.paths == 4);  // three upper directories and the file
    CHECK(layer.differing_from(seal).empty());
    { const auto mounts = layer.storage->mount(layer.chain, kFirstHostId); }
    CHECK(layer.differing_from(seal).empty());
  });
}

TEST_CASE("every kind of change breaks the seal, and is named by its path inside") {
  const Layer layer;
  base::make_directories(layer.top + "/src/deep", 0755);
  for (const char* name : {"src/a", "src/deep/b", "gone", "mode"}) layer.put(name, "text");
  REQUIRE(symlink("target", (layer.top + "/link").c_str()) == 0);
  const Seal seal = layer.seal();
  const std::string b = layer.top + "/src/deep/b";

  SECTION("content, with size and time restored") {
    struct stat before {};
    REQUIRE(stat(b.c_str(), &before) == 0);
    const base::Fd file = base::open_file(b, O_WRONLY);
    REQUIRE(pwrite(file.get(), "TEXT", 4, 0) == 4);
    const timespec times[2] = {before.st_atim, before.st_mtim};
    REQUIRE(futimens(file.get(), times) == 0);
    CHECK(layer.differing_from(seal) == Paths{"/workspace/src/deep/b"});
  }
  SECTION("a removed file, a new one, a mode, a link, the home") {
    REQUIRE(unlink((layer.top + "/gone").c_str()) == 0);
    layer.put("came\nwith a newline", "x");
    REQUIRE(chmod((layer.top + "/mode").c_str(), 0600) == 0);
    REQUIRE(unlink((layer.top + "/link").c_str()) == 0);
    REQUIRE(symlink("elsewhere", (layer.top + "/link").c_str()) == 0);
    base::write_file(layer.path + "/home/upper/.profile", "x");
    CHECK(layer.differing_from(seal) == Paths{"/workspace/came\nwith a newline", "/workspace/gone",
                                              "/workspace/link", "/workspace/mode",
                                              "/home/user/.profile"});
  }
  SECTION("an overlay mark on a directory") {
    const std::string directory = layer.top + "/src";
    REQUIRE(setxattr(directory.c_str(), "trusted.overlay.opaque", "y", 1, 0) == 0);
    CHECK(layer.differing_from(seal) == Paths{"/workspace/src"});
  }
  SECTION("a file that became a directory") {
    REQUIRE(unlink((layer.top + "/gone").c_str()) == 0);
    REQUIRE(mkdir((layer.top + "/gone").c_str(), 0755) == 0);
    CHECK(layer.differing_from(seal) == Paths{"/workspace/gone"});
  }
  SECTION("the same names in other directories") {
    REQUIRE(rename((layer.top + "/src/a").c_str(), (layer.top + "/src/deep/a").c_str()) == 0);
    CHECK(layer.differing_from(seal) == Paths{"/workspace/src/a", "/workspace/src/deep/a"});
  }
}

TEST_CASE("a seal handles any depth, and stops at its limits") {
  const Layer layer;
  base::Fd here = base::open_directory(layer.top);
  const std::string name(200, 'd');
  for (int depth = 0; depth < 3000; ++depth) {
    REQUIRE(mkdirat(here.get(), name.c_str(), 0755) == 0);
    here = base::open_file_at(here.get(), name, O_RDONLY | O_DIRECTORY);
  }
  const Seal seal = layer.seal();
  CHECK(seal.paths == 3003);
  CHECK(base::read_file(layer.list_path).size() < 64 << 10);  // long paths are only in the hash
  REQUIRE(mkdirat(here.get(), "new", 0755) == 0);
  CHECK(take_seal(layer.path).hash != seal.hash);
  for (const SealLimits& limits : {SealLimits{.max_memory_bytes = 100'000},
                                   SealLimits{.time = std::chrono::milliseconds(0)}}) {
    try {
      take_seal(layer.path, limits);
      FAIL("beyond the limit");
    } catch (const base::Error& error) {
      CHECK(error.code() == base::Code::resource_exhausted);
    }
  }
}

TEST_CASE("a directory with more names than fit in memory has the same seal") {
  const Layer layer;
  const base::Fd top = base::open_directory(layer.top);
  for (int n = 0; n < 20'000; ++n) {
    const std::string name = "name-" + std::to_string(n * 7919 % 20'000);
    REQUIRE(mknodat(top.get(), name.c_str(), S_IFREG | 0644, 0) == 0);
  }
  const Seal whole = layer.seal();
  CHECK(whole.paths == 20'003);
  std::string in_order;
  const Seal in_pieces = take_seal(
      layer.path, {.max_memory_bytes = 200'000},
      [&](auto path, auto hash) { in_order.append(path).append(1, '\0').append(hash) += '\n'; });
  CHECK(in_pieces.hash == whole.hash);
  CHECK(in_order == base::read_file(layer.list_path));
}

TEST_CASE("differences are found in one pass, whatever the names") {
  const Layer layer;
  base::make_directories(layer.top + "/a/b", 0755);
  base::make_directories(layer.path + "/system/upper/etc", 0755);
  // Names that sort around a slash, and bytes above the range of a signed char.
  for (const char* name : {"a!", "a-b", "a.b", "a/b!", "a/b/x", "a0", "A", "a\x01", "\xff\xfe"})
    layer.put(name, "text");
  const base::Fd many = base::open_directory(layer.top + "/a");
  for (int n = 0; n < 3000; ++n)  // more than one piece of the list
    REQUIRE(mknodat(many.get(), std::to_string(n).c_str(), S_IFREG | 0644, 0) == 0);
  const Seal seal = layer.seal();
  CHECK(layer.differing_from(seal).empty());

  SECTION("one changed, one removed, some new") {
    layer.put("a!", "other text");
    layer.put("a/b/y", "text");
    layer.put("a/b/\x01", "text");
    layer.put("\xff\xff", "text");
    REQUIRE(unlink((layer.top + "/a/2000").c_str()) == 0);
    base::write_file(layer.path + "/system/upper/etc/passwd", "x");
    CHECK(layer.differing_from(seal) == Paths{"/workspace/a/2000", "/workspace/a/b/\x01",
                                              "/workspace/a/b/y", "/workspace/a!",
                                              "/workspace/\xff\xff", "/etc/passwd"});
  }
  SECTION("the last of the list") {
    base::remove_tree(layer.path + "/system/upper/etc");
    CHECK(layer.differing_from(seal) == Paths{"/etc"});
  }
  SECTION("a damaged list, and a missing one") {
    base::write_file(layer.list_path, "no list at all");
    CHECK(layer.differing_from({}).size() == 3000 + 15);
    REQUIRE(unlink(layer.list_path.c_str()) == 0);
    CHECK_FALSE(SealListComparison(layer.list_path).has_list());
  }
}

TEST_CASE("the list of a seal ends at its limit") {
  const Layer layer;
  for (int n = 100; n < 200; ++n) layer.put(std::to_string(n), "");
  uint64_t bytes = 0;
  take_seal(layer.path, {.max_list_bytes = 1000},
            [&](auto path, auto hash) { bytes += path.size() + hash.size() + 2; });
  CHECK(bytes <= 1000);
  CHECK(bytes > 900);
}

TEST_CASE("a layer without one of its directories cannot be sealed") {
  const Layer layer;
  base::remove_tree(layer.path + "/home");
  try {
    take_seal(layer.path);
    FAIL("a part is missing");
  } catch (const base::Error& error) {
    CHECK(error.code() == base::Code::not_found);
  }
}
