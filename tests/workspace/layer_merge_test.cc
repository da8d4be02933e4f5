// Several layers as one, seen through the kernel.
#include "workspace/layer_merge.h"

#include <sys/mount.h>

#include <catch2/catch.hpp>
#include <iostream>

#include "base/error.h"
#include "edits_fixture.h"

using namespace moorage;
using namespace moorage::workspace;

namespace {

constexpr int64_t kTop = 1000;     // writable layers that only look
constexpr int64_t kMerged = 2000;  // numbers of merged layers

// What one can see of a tree: contents, owners, modes, times.
View all_of(const StorageFixture& fixture) {
  const ActiveMounts mounts = fixture.storage->mount(fixture.chain, kFirstHostId);
  const std::string root = "/proc/self/fd/" + std::to_string(mounts.tree.get());
  View view = view_of_directory(root);
  for (auto& [path, text] : view) {
    struct stat status {};
    base::check(lstat((root + "/" + path).c_str(), &status), path);
    text += " " + std::to_string(status.st_mode) + " " + std::to_string(status.st_uid) + ":" +
            std::to_string(status.st_gid) + " " + std::to_string(status.st_mtim.tv_sec) + "." +
            std::to_string(status.st_mtim.tv_nsec);
  }
  return view;
}

std::string upper_of(const StorageFixture& fixture, base::LayerId layer) {
  return fixture.storage->layer_path(layer) + "/tree/upper";
}

// A chain of random layers, then each number of its lowest ones merged into one.
void compare_merged(uint32_t seed) {
  INFO("MOORAGE_TEST_SEED=" << seed);
  StorageFixture fixture;
  fill_base(fixture);
  for (int64_t layer = 1; layer <= 6; ++layer) {
    fixture.chain.writable = {layer};
    fixture.storage->make_layer({layer});
    const ActiveMounts mounts = fixture.storage->mount(fixture.chain, kFirstHostId);
    Editor("/proc/self/fd/" + std::to_string(mounts.tree.get()),
           seed * 10 + static_cast<uint32_t>(layer))
        .edit(20);
    fixture.chain.frozen.insert(fixture.chain.frozen.begin(), {layer});
  }
  fixture.chain.writable = {kTop};
  fixture.storage->make_layer({kTop});
  const std::vector<base::LayerId> frozen = fixture.chain.frozen;
  const View want = all_of(fixture);
  for (size_t kept = 0; kept < frozen.size(); ++kept) {
    INFO("merged " << frozen.size() - kept << " of " << frozen.size());
    const base::LayerId merged{kMerged + static_cast<int64_t>(kept)};
    fixture.storage->make_layer(merged);
    MergeParts parts{{}, fixture.chain.base_tree, upper_of(fixture, merged)};
    for (size_t i = kept; i < frozen.size(); ++i)
      parts.uppers.push_back(upper_of(fixture, frozen[i]));
    const MergeResult result = merge_layers(parts);
    REQUIRE(result.copied_files == 0);
    fixture.chain.frozen.assign(frozen.begin(), frozen.begin() + static_cast<ptrdiff_t>(kept));
    fixture.chain.frozen.push_back(merged);
    fixture.chain.writable = {kTop + 1 + static_cast<int64_t>(kept)};
    fixture.storage->make_layer(fixture.chain.writable);
    REQUIRE(all_of(fixture) == want);
  }
}

}  // namespace

TEST_CASE("a merged layer shows what the layers showed, whatever lies on it") {
  const char* given = getenv("MOORAGE_TEST_SEED");
  const uint32_t first_seed = given ? static_cast<uint32_t>(atol(given)) : std::random_device()();
  std::cout << "merged layers: MOORAGE_TEST_SEED=" << first_seed << std::endl;
  for (uint32_t seed = first_seed; seed < first_seed + 6; ++seed) compare_merged(seed);
}

TEST_CASE("a merge without a base keeps no whiteout and no mark") {
  StorageFixture fixture;
  const std::string older = fixture.upper();
  fixture.storage->make_layer({2});
  const std::string newer = upper_of(fixture, {2});
  base::write_file(older + "/gone", "old");
  base::make_directories(older + "/d", 0755);
  base::write_file(older + "/d/kept", "kept");
  base::check(mknod((newer + "/gone").c_str(), S_IFCHR, 0), "mknod");
  fixture.storage->make_layer({3});
  const std::string merged = upper_of(fixture, {3});
  const MergeResult result = merge_layers({{newer, older}, "", merged});
  CHECK(result.entries == 3);
  CHECK_FALSE(base::path_exists(merged + "/gone"));
  CHECK(base::read_file(merged + "/d/kept") == "kept");
}

TEST_CASE("where files cannot have a second name they are copied, and names stay together") {
  in_own_namespace([] {
    StorageFixture fixture;
    const std::string upper = fixture.upper();
    base::write_file(upper + "/one", "content");
    base::check(link((upper + "/one").c_str(), (upper + "/other").c_str()), "link");
    const std::string elsewhere = fixture.directory.path() + "/elsewhere";
    base::make_directories(elsewhere);
    base::check(mount("tmpfs", elsewhere.c_str(), "tmpfs", 0, nullptr), "mount");
    const MergeResult result = merge_layers({{upper}, fixture.chain.base_tree, elsewhere});
    CHECK(result.copied_files == 1);
    struct stat one {
    }, other{};
    base::check(stat((elsewhere + "/one").c_str(), &one), "stat");
    base::check(stat((elsewhere + "/other").c_str(), &other), "stat");
    CHECK(one.st_ino == other.st_ino);
    CHECK(base::read_file(elsewhere + "/other") == "content");
    base::check(umount2(elsewhere.c_str(), MNT_DETACH), "umount");
  });
}
