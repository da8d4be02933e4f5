// Merges several layers into one, and compares them through the kernel.
#include "layers/merge.h"

#include <sys/mount.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <iostream>
#include <optional>

#include "base/error.h"
#include "layers/edits_fixture.h"
#include "sanitized.h"

using namespace moorage;
using namespace moorage::layers;

namespace {

constexpr int64_t kTop = 1000;     // writable layers for reading only
constexpr int64_t kMerged = 2000;  // numbers of merged layers

// Everything visible in a tree: contents, owners, modes, times.
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

std::string work_of(const StorageFixture& fixture, base::LayerId layer) {
  return fixture.storage->layer_path(layer) + "/tree/work";
}

// Nests directories "d", more than a path can name; returns the innermost.
base::Fd make_nested(const std::string& top, int levels) {
  base::Fd here = base::open_directory(top);
  for (int level = 0; level < levels; ++level) {
    base::check(mkdirat(here.get(), "d", 0755), "mkdirat");
    here = base::open_file_at(here.get(), "d", O_RDONLY | O_DIRECTORY);
  }
  return here;
}

base::Fd open_nested(const std::string& top, int levels) {
  base::Fd here = base::open_directory(top);
  for (int level = 0; level < levels; ++level)
    here = base::open_file_at(here.get(), "d", O_RDONLY | O_DIRECTORY);
  return here;
}

void make_file_at(const base::Fd& directory, const std::string& name) {
  const base::Fd made(openat(directory.get(), name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  base::check(made.get(), name);
}

// Limits the process to this many descriptors during its lifetime.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t most) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{most, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// Mounts a file system in memory at a path during its lifetime.
class MemoryMount {
 public:
  explicit MemoryMount(std::string path) : path_(std::move(path)) {
    base::check(mount("tmpfs", path_.c_str(), "tmpfs", 0, nullptr), "mount " + path_);
  }
  ~MemoryMount() { umount2(path_.c_str(), MNT_DETACH); }
  MemoryMount(const MemoryMount&) = delete;
  MemoryMount& operator=(const MemoryMount&) = delete;

 private:
  const std::string path_;
};

// Makes a chain of random layers, then merges each number of its lowest ones.
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
    MergeParts parts{
        {}, fixture.chain.base_tree, upper_of(fixture, merged), work_of(fixture, merged)};
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

TEST_CASE("a merged layer shows what its layers showed, below any other layer") {
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
  const MergeResult result = merge_layers({{newer, older}, "", merged, work_of(fixture, {3})});
  CHECK(result.entries == 3);
  CHECK_FALSE(base::path_exists(merged + "/gone"));
  CHECK(base::read_file(merged + "/d/kept") == "kept");
}

TEST_CASE("files that cannot be linked are copied, and hard links stay together") {
  in_own_namespace([] {
    StorageFixture fixture;
    const std::string upper = fixture.upper();
    base::write_file(upper + "/one", "content");
    base::check(link((upper + "/one").c_str(), (upper + "/other").c_str()), "link");
    const std::string elsewhere = fixture.directory.path() + "/elsewhere";
    base::make_directories(elsewhere);
    base::check(mount("tmpfs", elsewhere.c_str(), "tmpfs", 0, nullptr), "mount");
    const std::string work = elsewhere + "/work";
    const std::string merged = elsewhere + "/upper";
    base::make_directories(work);
    base::make_directories(merged);
    const MergeResult result = merge_layers({{upper}, fixture.chain.base_tree, merged, work});
    CHECK(result.copied_files == 1);
    struct stat one {
    }, other{};
    base::check(stat((merged + "/one").c_str(), &one), "stat");
    base::check(stat((merged + "/other").c_str(), &other), "stat");
    CHECK(one.st_ino == other.st_ino);
    CHECK(base::read_file(merged + "/other") == "content");
    CHECK(base::list_directory(work).empty());
    base::check(umount2(elsewhere.c_str(), MNT_DETACH), "umount");
  });
}

TEST_CASE("directories nested deeper than any path are merged with few descriptors") {
  constexpr int kLevels = 5000;
  StorageFixture fixture;
  fixture.storage->make_layer({2});
  fixture.storage->make_layer({3});
  const std::string older = fixture.upper();
  const std::string newer = upper_of(fixture, {2});
  const std::string merged = upper_of(fixture, {3});
  {
    const base::Fd below = make_nested(older, kLevels);
    make_file_at(below, "kept");
    make_file_at(below, "gone");
    const base::Fd above = make_nested(newer, kLevels);
    make_file_at(above, "new");
    base::check(mknodat(above.get(), "gone", S_IFCHR, 0), "mknodat");
    // An entry after a deep directory, in its parent halfway down.
    make_file_at(open_nested(older, kLevels / 2), "zz");
  }
  const FewDescriptors few(400);
  merge_layers({{newer, older}, fixture.chain.base_tree, merged, work_of(fixture, {3})});
  CHECK(base::list_directory(open_nested(merged, kLevels).get()) ==
        std::vector<std::string>{"kept", "new"});
  CHECK(base::list_directory(open_nested(merged, kLevels / 2).get()) ==
        std::vector<std::string>{"d", "zz"});
  CHECK(base::list_directory(merged) == std::vector<std::string>{"d"});
}

TEST_CASE("a directory with more names than fit in memory is merged") {
  in_own_namespace([] {
    // 35 MB of names, or on a disk three million of them: shorter, because ext4's index cannot hold
    // as many long ones; inserting in listing order leaves its blocks half full.
    const bool is_long = getenv("MOORAGE_TEST_LONG");
    const int count = is_long ? 3'000'000 : 140'000;
    const std::string stem(is_long ? 40 : 240, 'n');
    TemporaryDirectory directory;
    const std::string& top = directory.path();
    std::optional<MemoryMount> memory;
    if (!is_long) memory.emplace(top);
    for (const char* name : {"/older/many", "/newer/many", "/merged", "/work"})
      base::make_directories(top + name, 0755);
    {
      const base::Fd many = base::open_directory(top + "/older/many");
      for (int n = 0; n < count; ++n) {
        const std::string name = stem + std::to_string(n);
        base::check(mknodat(many.get(), name.c_str(), S_IFREG | 0644, 0), "mknodat");
      }
      const base::Fd newer = base::open_directory(top + "/newer/many");
      make_file_at(newer, stem + "7");
      base::check(fchmodat(newer.get(), (stem + "7").c_str(), 0600, 0), "fchmodat");
    }
    rusage before{};
    getrusage(RUSAGE_SELF, &before);
    const MergeResult result =
        merge_layers({{top + "/newer", top + "/older"}, "", top + "/merged", top + "/work"});
    rusage after{};
    getrusage(RUSAGE_SELF, &after);
    CHECK(result.entries == static_cast<uint64_t>(count) + 1);
    struct stat merged {};
    base::check(stat((top + "/merged/many/" + stem + "7").c_str(), &merged), "stat");
    CHECK((merged.st_mode & 0777) == 0600);  // the newer one
    const long growth_kb = after.ru_maxrss - before.ru_maxrss;
    INFO("it took " << growth_kb << " kB");
    CHECK((test::kSanitized || growth_kb < 10'000));
  });
}
