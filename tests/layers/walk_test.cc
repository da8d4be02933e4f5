#include "layers/walk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "layers/edits_fixture.h"

namespace moorage::layers {
namespace {

// The workspace's contents according to a walk over uppers and base.
class WalkedView {
 public:
  WalkedView(std::vector<std::string> uppers, std::string base)
      : uppers_(std::move(uppers)),
        base_(std::move(base)),
        walk_(uppers_, [this](const std::string& path) {
          const std::string full = base_ + "/" + path;
          return fs::is_directory(full) && !fs::is_symlink(full);
        }) {
    add(walk_.root());
    CHECK_FALSE(walk_.changed_meanwhile());
  }
  View view;

 private:
  void add(const MergedDirectory& directory) {
    LayerWalk::Open open = walk_.open(directory);
    for (const std::string& name : open.names()) {
      auto entry = open.entry(name);
      REQUIRE(entry);
      const std::string path = join(directory.path, name);
      if (entry->kind == EntryKind::directory) {
        CHECK(entry->directory.path == path);
        view[path] = "d";
        add(entry->directory);
      } else if (entry->kind != EntryKind::absent) {
        view[path] = describe(uppers_[entry->source.layer] + "/" + entry->source.path);
      }
    }
    if (!directory.base) return;
    const auto& names = open.names();
    for (const auto& item : fs::directory_iterator(base_ + "/" + *directory.base)) {
      const std::string name = item.path().filename();
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      const std::string path = join(directory.path, name);
      view[path] = describe(item.path());
      if (view[path] != "d") continue;
      for (const auto& [below, text] : view_of_directory(item.path()))
        view[path + "/" + below] = text;
    }
  }

  std::vector<std::string> uppers_;
  std::string base_;
  LayerWalk walk_;
};

void compare_with_kernel(uint32_t seed) {
  INFO("MOORAGE_TEST_SEED=" << seed);
  StorageFixture fixture;
  fill_base(fixture);
  std::vector<std::string> uppers;
  for (int64_t layer = 1; layer <= 5; ++layer) {
    fixture.chain.writable = {layer};
    fixture.storage->make_layer({layer});
    uppers.insert(uppers.begin(), fixture.upper());
    ActiveMounts mounts = fixture.storage->mount(fixture.chain, kFirstHostId);
    const std::string root = "/proc/self/fd/" + std::to_string(mounts.tree.get());
    Editor(root, seed * 10 + static_cast<uint32_t>(layer)).edit(25);
    View seen = view_of_directory(root);
    View walked = WalkedView(uppers, fixture.chain.base_tree).view;
    REQUIRE(walked == seen);
    fixture.chain.frozen.insert(fixture.chain.frozen.begin(), {layer});
  }
}

}  // namespace

TEST_CASE("the walk finds what the kernel shows, through any chain of random edits") {
  const char* given = getenv("MOORAGE_TEST_SEED");
  const uint32_t first_seed = given ? static_cast<uint32_t>(atol(given)) : std::random_device()();
  for (uint32_t seed = first_seed; seed < first_seed + 6; ++seed) compare_with_kernel(seed);
}

TEST_CASE("the walk finds what the kernel shows after edits that once failed") {
  compare_with_kernel(1544838798);  // a redirect from the root below an opaque directory
}

TEST_CASE("a directory renamed out of a renamed directory keeps its contents from the base") {
  StorageFixture fixture;
  fill_base(fixture);
  std::vector<std::string> uppers;
  using Names = std::pair<std::string, std::string>;
  // Redirects from the root through a redirect in an older layer, relative ones, and back to the
  // original name.
  const std::vector<Names> renames{{"a", "moved"},           {"moved/b", "taken"},
                                   {"taken/c", "taken/sea"}, {"taken/sea", "moved/c"},
                                   {"taken", "d/b"},         {"moved", "a"}};
  int64_t layer = 0;
  for (const auto& [from, to] : renames) {
    fixture.chain.writable = {++layer};
    fixture.storage->make_layer({layer});
    uppers.insert(uppers.begin(), fixture.upper());
    ActiveMounts mounts = fixture.storage->mount(fixture.chain, kFirstHostId);
    REQUIRE(rename(through(mounts.tree, from).c_str(), through(mounts.tree, to).c_str()) == 0);
    View seen = view_of_directory("/proc/self/fd/" + std::to_string(mounts.tree.get()));
    REQUIRE(WalkedView(uppers, fixture.chain.base_tree).view == seen);
    fixture.chain.frozen.insert(fixture.chain.frozen.begin(), {layer});
  }
}

TEST_CASE("links and swapped directories in an upper are not followed") {
  StorageFixture fixture;
  const std::string upper = fixture.upper();
  REQUIRE(symlink("/etc", (upper + "/link").c_str()) == 0);
  LayerWalk walk({upper}, [](const std::string&) { return false; });
  CHECK_FALSE(walk.open_file({0, "link/passwd"}));
  CHECK_FALSE(walk.open_file({0, "link"}));
  CHECK_FALSE(walk.read_link({0, "link/gone"}));
  CHECK(walk.read_link({0, "link"}) == "/etc");
  CHECK(walk.changed_meanwhile());
  REQUIRE(mkfifo((upper + "/fifo").c_str(), 0666) == 0);
  CHECK_FALSE(walk.open_file({0, "fifo"}));
}

TEST_CASE("paths over the kernel's limit and names beyond a million are skipped and reported") {
  StorageFixture fixture;
  base::Fd level = base::open_directory(fixture.upper());
  const std::string name(200, 'n');
  for (int i = 0; i < 30; ++i) {
    REQUIRE(mkdirat(level.get(), name.c_str(), 0755) == 0);
    level = base::open_file_at(level.get(), name, O_RDONLY | O_DIRECTORY);
  }
  LayerWalk walk({fixture.upper()}, [](const std::string&) { return false; });
  MergedDirectory directory = walk.root();
  int depth = 0;
  for (;; ++depth) {
    LayerWalk::Open open = walk.open(directory);
    REQUIRE(open.names().size() == 1);
    auto entry = open.entry(open.names().front());
    if (!entry) break;
    MergedDirectory next = entry->directory;
    directory = next;
  }
  CHECK(depth == 4095 / 201);
  CHECK(walk.truncated());
  CHECK_FALSE(walk.changed_meanwhile());
}

TEST_CASE("names are charged while their directory is open, and names over the limit left out") {
  TemporaryDirectory directory;
  for (int n = 0; n < 200; ++n)
    std::ofstream(directory.path() + "/" + std::string(200, 'n') + std::to_string(n));
  LayerWalk walk({directory.path()}, [](const std::string&) { return false; });
  base::LookMemory memory(10'000);
  walk.charge(&memory);
  {
    const auto root = walk.root();
    const auto open = walk.open(root);
    CHECK(open.names().size() > 10);
    CHECK(open.names().size() < 50);
    CHECK(walk.truncated());
    CHECK(memory.used_bytes() > 5'000);
  }
  CHECK(memory.used_bytes() == 0);
}

}  // namespace moorage::layers
