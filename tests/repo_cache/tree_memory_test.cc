// Resources of comparisons with a commit: charges and deadlines.
#include <fcntl.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/error.h"
#include "base/look_memory.h"
#include "base/os/files.h"
#include "git_fixture.h"
#include "repo_cache/formats/attributes.h"
#include "repo_cache/text_cost.h"
#include "repo_cache/tree_diff.h"

using namespace moorage;
using namespace moorage::repo_cache;
using namespace moorage::repo_cache::test;

namespace fs = std::filesystem;

namespace {

const TimeLimit kOver = std::chrono::steady_clock::now() - std::chrono::seconds(1);

struct World : CachedUpstream {
  CommitTree open(const std::string& commit) {
    refresh();
    return CommitTree(cache, "repo_1", commit);
  }
  bool equals(const CommitTree& tree, const std::string& path, std::string_view bytes) {
    put_file(directory / "file", bytes);
    const base::Fd fd = base::open_file(directory / "file", O_RDONLY);
    return tree.content_equals(path, kModeFile, fd.get());
  }
};

std::vector<Change> put(const std::string& path, const std::string& bytes) {
  std::vector<Change> changes;
  changes.push_back({path, false, kModeFile, [bytes]() -> Content { return bytes; }});
  return changes;
}

DiffStat stat_of(const CommitTree& tree, std::vector<Change> changes) {
  auto stats = tree.stat(std::move(changes));
  REQUIRE(stats.size() == 1);
  return stats[0];
}

bool refused(const std::function<void()>& work) {
  try {
    work();
    return false;
  } catch (const base::Error& error) {
    CHECK(error.code() == base::Code::resource_exhausted);
    return true;
  }
}

std::string lines(size_t count, const std::string& line = "") {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += line + "\n";
  return text;
}

// Damages the middle of the mirror's largest file: its largest blob becomes unreadable.
void break_largest_blob(const std::string& mirror) {
  fs::path largest;
  for (const auto& entry : fs::recursive_directory_iterator(mirror)) {
    if (!entry.is_regular_file()) continue;
    if (largest.empty() || entry.file_size() > fs::file_size(largest)) largest = entry.path();
  }
  fs::permissions(largest, fs::perms::owner_write, fs::perm_options::add);
  std::fstream file(largest, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(largest) / 2));
  file << std::string(4096, '\0');
}

}  // namespace

TEST_CASE("a file with too many lines for a text diff is reported by its sizes") {
  World world;
  const size_t most = base::kAllLooksBytes / kDiffLineBytes;
  const std::string base = world.upstream.commit({{"old", lines(most / 2, "a")}});
  const CommitTree tree = world.open(base);
  const DiffStat many = stat_of(tree, put("new", lines(most)));
  CHECK(many.binary);
  CHECK(many.added == 0);
  CHECK(many.bytes_after == most);
  CHECK_FALSE(stat_of(tree, put("new", lines(most / 2))).binary);
  CHECK_FALSE(stat_of(tree, put("old", "x\n")).binary);
  const DiffStat both = stat_of(tree, put("old", lines(most / 2, "b")));  // both sides count
  CHECK(both.binary);
  CHECK(both.bytes_before == both.bytes_after);
  CHECK(base::LookMemory::all_used_bytes() == 0);
}

TEST_CASE("a text diff cannot use memory taken by other diffs") {
  World world;
  const CommitTree tree = world.open(world.upstream.commit({{"a", "a\n"}}));
  CHECK(stat_of(tree, put("new", lines(1000))).added == 1000);
  base::LookMemory others(base::kAllLooksBytes);
  REQUIRE(others.take(base::kAllLooksBytes - 1000 * kDiffLineBytes));
  const auto stats = tree.stat(put("new", lines(1000)));
  REQUIRE(stats.size() == 1);
  CHECK(stats[0].binary);
  CHECK(stats[0].bytes_after == 1000);
  REQUIRE(others.take(1000 * kDiffLineBytes));
  CHECK(refused([&] { tree.stat(put("new", "x\n")); }));
  CHECK(refused([&] { tree.patch(put("new", "x\n")); }));
}

TEST_CASE("a patch has such a file in binary form, and applies") {
  World world;
  const size_t most = base::kAllLooksBytes / kDiffLineBytes;
  const std::string before = lines(most / 2, "a");
  const std::string after = lines(most / 2, "b");
  const std::string base = world.upstream.commit({{"a", "a\n"}, {"old", before}, {"z", "z\n"}});
  const CommitTree tree = world.open(base);
  std::vector<Change> changes = put("old", after);
  for (const char* name : {"a", "z"}) changes.push_back(std::move(put(name, "new\n")[0]));
  const std::string patch = tree.patch(std::move(changes)).text;
  CHECK(patch.find("GIT binary patch") != std::string::npos);
  CHECK(patch.find("+new\n") != std::string::npos);
  CHECK(patch.size() < 1 << 20);
  const std::string place = world.directory / "applied";
  git(world.directory.path(), {"clone", "-q", world.upstream.path(), place});
  git(place, {"apply", "--binary", "-"}, patch);
  CHECK((get_file(place + "/old") == after));
  CHECK(get_file(place + "/z") == "new\n");
  CHECK(base::LookMemory::all_used_bytes() == 0);
}

TEST_CASE("a diff larger than the memory is made in parts") {
  World world;
  constexpr size_t kFiles = 30;
  const std::string line(4095, 'x');
  const std::string before = lines(1000, line);  // 4 MB each
  for (size_t n = 0; n < kFiles; ++n)
    put_file(world.upstream.path() + "/large" + std::to_string(n), before);
  const CommitTree tree = world.open(world.upstream.commit_all());
  std::vector<Change> changes;
  for (size_t n = 0; n < kFiles; ++n)
    changes.push_back(std::move(put("large" + std::to_string(n), before + "one more\n").front()));
  const auto stats = tree.stat(changes);
  REQUIRE(stats.size() == kFiles);
  for (const auto& stat : stats) {
    INFO(stat.path);
    CHECK_FALSE(stat.binary);
    CHECK(stat.added == 1);
  }
  const std::string patch = tree.patch(changes).text;
  size_t found = 0;
  for (size_t at = 0; (at = patch.find("+one more\n", at)) != std::string::npos; ++at) ++found;
  CHECK(found == kFiles);
  CHECK(base::LookMemory::all_used_bytes() == 0);
}

TEST_CASE("a binary patch is also charged before it begins") {
  World world;
  const CommitTree tree = world.open(world.upstream.commit({{"a", "a\n"}}));
  const std::string zeros(1 << 20, '\0');
  CHECK(tree.patch(put("new", zeros)).text.size() < 5000);
  base::LookMemory others(base::kAllLooksBytes);
  // Exactly the contents, in the new tree and in the diff.
  REQUIRE(others.take(base::kAllLooksBytes - 2 * zeros.size() - (200 << 10)));
  CHECK(refused([&] { tree.patch(put("new", zeros)); }));
  CHECK(stat_of(tree, put("new", zeros)).binary);
  others.give(2 * zeros.size());
  CHECK(tree.patch(put("new", zeros)).text.size() < 5000);
}

TEST_CASE("only the charged size of a file is read, even if it grows") {
  World world;
  const CommitTree tree = world.open(world.upstream.commit({{"a", "a\n"}}));
  // The kernel reports 0 bytes for it, but it has more.
  std::vector<Change> changes;
  changes.push_back({"grown", false, kModeFile,
                     []() -> Content { return base::open_file("/proc/self/status", O_RDONLY); }});
  const DiffStat stat = stat_of(tree, std::move(changes));
  CHECK(stat.bytes_after == 0);
  CHECK(stat.added == 0);
}

TEST_CASE("a file too large for a diff is reported by its own size") {
  World world;
  const CommitTree tree = world.open(world.upstream.commit({{"a", std::string(2000, 'a')}}));
  DiffLimits limits;
  limits.max_file_bytes = 1000;
  auto stats = tree.stat(put("new", std::string(1500, 'x')), limits);
  REQUIRE(stats.size() == 1);
  CHECK(stats[0].binary);
  CHECK(stats[0].bytes_after == 1500);
  stats = tree.stat(put("a", "small\n"), limits);  // of the commit
  REQUIRE(stats.size() == 1);
  CHECK(stats[0].binary);
  CHECK(stats[0].bytes_before == 2000);
  CHECK(stats[0].bytes_after == 6);
  const Patch patch = tree.patch(put("a", "small\n"), limits);
  CHECK(patch.text.empty());
  REQUIRE(patch.left_out.size() == 1);
  CHECK(patch.left_out[0].bytes == 2000);
}

TEST_CASE("comparing a file does not read the committed blob, nor does a summary if it is large") {
  World world;
  std::mt19937 random(1);
  std::string large;
  while (large.size() < 40 << 20) large += static_cast<char>(random());
  const std::string base = world.upstream.commit(
      {{".gitattributes", "*.auto text=auto\n"}, {"large.auto", large}, {"large", large}});
  world.refresh();
  break_largest_blob(world.cache.mirror_directory("repo_1"));
  const CommitTree tree(world.cache, "repo_1", base);
  CHECK_THROWS_AS(tree.read_blob("large", large.size()), base::Error);
  CHECK(world.equals(tree, "large", large));
  for (const char* path : {"large", "large.auto"}) CHECK_FALSE(world.equals(tree, path, ""));
  CHECK_FALSE(world.equals(tree, "large.auto", "a\r\nb\r\n"));
  large[large.size() / 2] ^= 1;
  CHECK_FALSE(world.equals(tree, "large", large));
  CHECK_FALSE(tree.incomplete());
  const DiffStat stat = stat_of(tree, put("large.auto", "a\r\n"));
  CHECK(stat.binary);
  CHECK(stat.bytes_before == large.size());
}

TEST_CASE("a file beyond the memory of a diff is left out, and one that waits for others is not") {
  World world;
  const CommitTree tree = world.open(world.upstream.commit({{"a", "a\n"}}));
  std::mt19937 random(1);
  std::string large;
  while (large.size() < 30 << 20) large += static_cast<char>(random());
  auto changes = put("large", large);
  changes.push_back(put("small", "s\n").front());
  const Patch patch = tree.patch(changes);
  REQUIRE(patch.left_out.size() == 1);
  CHECK(patch.left_out[0].path == "large");
  CHECK(patch.left_out[0].why == LeftOut::kTooLarge);
  CHECK(patch.left_out[0].bytes == large.size());
  CHECK(patch.text.find("+s\n") != std::string::npos);
  CHECK(base::LookMemory::all_used_bytes() == 0);

  base::LookMemory others(base::kAllLooksBytes);
  REQUIRE(others.take(base::kAllLooksBytes - (1 << 20)));
  CHECK(refused([&] { tree.patch(put("fits alone", std::string(2 << 20, 'x'))); }));
}

TEST_CASE("a patch of any size is made, and files that do not fit beside the rest are left out") {
  World world;
  const CommitTree tree = world.open(world.upstream.commit({{"a", "a\n"}}));
  std::mt19937 random(1);
  std::string noise(32 << 20, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  const auto left_out = [&](const std::vector<uint64_t>& sizes) {
    std::vector<Change> changes = put("z", "last\n");
    for (size_t n = 0; n < sizes.size(); ++n) {
      const std::string bytes = noise.substr(0, sizes[n]);
      changes.push_back(std::move(put("f" + std::to_string(n), bytes).front()));
    }
    const Patch patch = tree.patch(changes);
    CHECK(patch.text.find("+last\n") != std::string::npos);
    std::string text;
    for (const LeftOut& file : patch.left_out) {
      text += file.path + " " + file.why + "\n";
      CHECK(file.bytes == sizes.at(file.path.at(1) - '0'));
    }
    CHECK(base::LookMemory::all_used_bytes() == 0);
    return text;
  };
  constexpr uint64_t kMiB = 1 << 20;
  CHECK(left_out({20 * kMiB}).empty());
  for (uint64_t half_mib = 41; half_mib <= 64; ++half_mib) {
    INFO(half_mib);
    CHECK(left_out({half_mib * kMiB / 2}) == "f0 too_large\n");
  }
  CHECK(left_out({12 * kMiB, 12 * kMiB, 12 * kMiB}).empty());
  CHECK(left_out({12 * kMiB, 12 * kMiB, 12 * kMiB, 12 * kMiB, 5 * kMiB}) == "f3 full\n");
  CHECK(left_out({15 * kMiB, 25 * kMiB, 15 * kMiB, 15 * kMiB, 15 * kMiB}) ==
        "f1 too_large\nf3 full\nf4 full\n");
}

TEST_CASE("a patch of many files is full at its limit, and names the others") {
  World world;
  const CommitTree tree = world.open(world.upstream.commit({{"a", "a\n"}}));
  std::mt19937 random(1);
  std::string noise(1 << 20, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  std::vector<Change> changes;
  for (int n = 0; n < 60; ++n)
    changes.push_back(std::move(put(std::to_string(10 + n), noise).front()));
  const Patch patch = tree.patch(changes);
  CHECK(patch.text.size() > 62 << 20);
  REQUIRE(patch.left_out.size() == 11);
  CHECK(patch.left_out[0].path == "59");
  CHECK(patch.left_out[0].why == LeftOut::kFull);
  CHECK(patch.left_out[0].bytes == noise.size());
}

TEST_CASE("a file whose former version cannot be read is left out of a patch") {
  World world;
  std::mt19937 random(1);
  std::string large;
  while (large.size() < 1 << 20) large += static_cast<char>(random());
  const std::string base = world.upstream.commit({{"large", large}, {"z", "z\n"}});
  world.refresh();
  break_largest_blob(world.cache.mirror_directory("repo_1"));
  auto changes = put("large", "new\n");
  changes.push_back(put("z", "zz\n").front());
  const Patch patch = CommitTree(world.cache, "repo_1", base).patch(changes);
  REQUIRE(patch.left_out.size() == 1);
  CHECK(patch.left_out[0].path == "large");
  CHECK(patch.left_out[0].why == LeftOut::kUnreadable);
  CHECK(patch.left_out[0].bytes == 4);
  CHECK(patch.text.find("+zz\n") != std::string::npos);
}

TEST_CASE("without memory for a conversion the raw bytes are compared") {
  World world;
  CommitTree tree = world.open(
      world.upstream.commit({{".gitattributes", "*.crlf eol=crlf\n"}, {"a.crlf", "a\nb\n"}}));
  CHECK(world.equals(tree, "a.crlf", "a\r\nb\r\n"));
  CHECK_FALSE(tree.incomplete());
  base::LookMemory others(base::kAllLooksBytes);
  REQUIRE(others.take(base::kAllLooksBytes - base::LookMemory::all_used_bytes()));
  CHECK_FALSE(world.equals(tree, "a.crlf", "a\r\nb\r\n"));
  CHECK(tree.incomplete());
  CHECK(world.equals(tree, "a.crlf", "a\nb\n"));
}

TEST_CASE("rules of .gitattributes are charged by their memory") {
  const std::string rules = lines(200'000, "a a");
  CHECK(Attributes::memory_bytes(rules) > 200'000 * 200);
  World world;
  CommitTree tree = world.open(
      world.upstream.commit({{".gitattributes", lines(100'000, "a text")}, {"a", "a\nb\n"}}));
  CHECK(world.equals(tree, "a", "a\nb\n"));
  CHECK(tree.incomplete());
  CHECK(refused([&] { tree.stat(put("a", "new\n")); }));
  CHECK(refused([&] { tree.patch(put("new", "new\n")); }));

  CommitTree plain = world.open(world.upstream.commit({{".gitattributes", "a text\n"}}));
  CHECK(world.equals(plain, "a", "a\r\nb\r\n"));
  CHECK_FALSE(plain.incomplete());
  CHECK(refused([&] { plain.stat(put("sub/.gitattributes", rules)); }));
  CHECK(stat_of(plain, put("sub/.gitattributes", lines(400'000, "a a"))).added ==
        400'000);  // > 1 MiB
}

TEST_CASE("past the deadline rules of .gitattributes are skipped") {
  Attributes attributes;
  attributes.add("", "* text\n");
  CHECK(attributes.conversion("a").line_ends == LineEnds::lf);
  attributes.set_deadline(kOver);
  CHECK(attributes.conversion("a").line_ends == LineEnds::keep);

  World world;
  CommitTree tree =
      world.open(world.upstream.commit({{".gitattributes", "* text\n"}, {"a", "a\nb\n"}}));
  DiffLimits late;
  late.deadline = kOver;
  CHECK(refused([&] { tree.stat(put("a", "new\n"), late); }));
  CHECK(refused([&] { tree.patch(put("a", "new\n"), late); }));
  CHECK_FALSE(tree.late());
  tree.set_deadline(kOver);
  CHECK(tree.late());
  CHECK_FALSE(world.equals(tree, "a", "a\nb\n"));
  CHECK(tree.incomplete());
}

TEST_CASE("past its deadline a summary has only sizes, and a patch is refused") {
  World world;
  CommitTree tree = world.open(world.upstream.commit({{"a", "old\n"}}));
  auto changes = put("a", "new\n");
  changes.push_back(put("b", "added\n").front());
  CHECK(tree.stat(changes).at(0).added == 1);
  DiffLimits late;
  late.deadline = kOver;
  const auto stats = tree.stat(changes, late);
  REQUIRE(stats.size() == 2);
  for (const DiffStat& stat : stats) {
    CHECK(stat.binary);
    CHECK(stat.added == 0);
  }
  CHECK(stats[0].bytes_after == 4);
  CHECK(stats[1].bytes_after == 6);
  const base::Error error = failure_of([&] { tree.patch(changes, late); });
  CHECK(error.code() == base::Code::resource_exhausted);
  CHECK(error.message() == "the comparison takes too long");
}

TEST_CASE("macros of .gitattributes nest as deep as a file is long") {
  std::string file;
  constexpr int kDepth = 60'000;
  for (int i = 0; i < kDepth; ++i)
    file += "[attr]m" + std::to_string(i) + " m" + std::to_string(i + 1) + "\n";
  file += "[attr]m" + std::to_string(kDepth) + " text\n* m0\nb -m0\nbin binary\n";
  Attributes attributes;
  attributes.add("", file);
  CHECK(attributes.conversion("a").line_ends == LineEnds::lf);
  CHECK(attributes.conversion("b").line_ends == LineEnds::keep);
  CHECK(attributes.conversion("bin").line_ends == LineEnds::keep);
}

TEST_CASE("trying patterns of .gitattributes is counted and limited") {
  Attributes attributes;
  attributes.add("", lines(1000, "name text") + "*a*b*c text\n[attr]m text\n");
  CHECK(attributes.conversion("name").line_ends == LineEnds::lf);
  const uint64_t first = attributes.steps();
  CHECK(first > 1000 * 2);  // each pattern, and each of its assignments
  attributes.conversion("other");
  const uint64_t second = attributes.steps() - first;
  CHECK(second > 1000);
  CHECK(second < first);
  attributes.conversion("sub/" + std::string(200, 'b'));
  CHECK(attributes.steps() - first - second > second);  // the bytes compared by wildcards

  attributes.set_most_steps(attributes.steps() + second);
  CHECK_NOTHROW(attributes.conversion("other"));
  CHECK(refused([&] { attributes.conversion("other"); }));
}
