// Random trees, from a seed, with all shapes that the format treats specially: restoring them gives
// the same tree. MOORAGE_TEST_LONG=1 runs a thousand seeds.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>

#include "packs/tar_fixture.h"

using namespace moorage;
using namespace moorage::packs;

namespace {

constexpr off_t kHole = 128 << 10;  // more than in a small file

class Grower {
 public:
  Grower(std::string top, unsigned seed) : top_(std::move(top)), random_(seed) {}

  void grow(size_t nodes) {
    own(top_);
    for (size_t n = 0; n < nodes; ++n) {
      // Use a short stem: the kernel limits the paths of this test to 4,095 bytes.
      const std::string& parent = directories_.at(below(directories_.size()));
      const std::string path = parent + "/" + name();
      if (base::path_exists(top_ + path)) continue;
      make(path);
    }
  }

 private:
  size_t below(size_t limit) {
    return std::uniform_int_distribution<size_t>(0, limit - 1)(random_);
  }

  // Near the limits: 100 bytes of a tar name, 155 of its prefix, 255 of a file system.
  std::string name() {
    const size_t bytes = below(3) == 0 ? 1 + below(20) : 90 + below(166);
    std::string text;
    while (text.size() < bytes) text += static_cast<char>('a' + below(26));
    if (below(4) == 0) text[below(bytes)] = static_cast<char>(1 + below(46));  // not a slash
    if (below(4) == 0) text[below(bytes)] = static_cast<char>(128 + below(128));
    return text == "." || text == ".." ? "dots" : text;
  }

  void own(const std::string& path) {
    const auto id = kDiskFirstId + static_cast<uint32_t>(below(65536));
    REQUIRE(lchown(path.c_str(), id, id) == 0);
  }

  void make(const std::string& path) {
    const std::string full = top_ + path;
    switch (below(8)) {
      case 0:
      case 1:
        REQUIRE(mkdir(full.c_str(), 0755) == 0);
        if (full.size() < 2500) directories_.push_back(path);
        if (below(4) == 0)
          REQUIRE(setxattr(full.c_str(), "trusted.overlay.opaque", "y", 1, 0) == 0);
        break;
      case 2:
        REQUIRE(symlink(std::string(1 + below(4000), 't').c_str(), full.c_str()) == 0);
        break;
      case 3:
        if (!files_.empty()) {
          REQUIRE(link((top_ + files_.at(below(files_.size()))).c_str(), full.c_str()) == 0);
          return;  // times and owner are those of the first link
        }
        [[fallthrough]];
      default:
        file(full);
        files_.push_back(path);
    }
    own(full);
    const timespec times[2] = {{1, 1},
                               {static_cast<time_t>(below(1UL << 34)) - (1L << 33),
                                static_cast<long>(below(1'000'000'000))}};
    REQUIRE(utimensat(AT_FDCWD, full.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
  }

  void file(const std::string& full) {
    const base::Fd fd = base::open_file(full, O_WRONLY | O_CREAT | O_EXCL, 0644);
    const size_t pieces = below(4);
    off_t end = 0;
    for (size_t n = 0; n < pieces; ++n) {
      end += below(2) == 0 ? 0 : static_cast<off_t>(below(8)) * kHole;
      const std::string bytes(1 + below(40'000), static_cast<char>('a' + n));
      REQUIRE(pwrite(fd.get(), bytes.data(), bytes.size(), end) ==
              static_cast<ssize_t>(bytes.size()));
      end += static_cast<off_t>(bytes.size());
    }
    if (below(2) == 0)
      REQUIRE(ftruncate(fd.get(), end + static_cast<off_t>(below(4)) * kHole) == 0);
    for (size_t n = below(3); n > 0; --n) {
      const std::string attribute =
          "user." + std::string(1 + below(100), static_cast<char>('a' + n));
      const std::string value(below(200), static_cast<char>(below(256)));
      REQUIRE(fsetxattr(fd.get(), attribute.c_str(), value.data(), value.size(), 0) == 0);
    }
  }

  const std::string top_;
  std::mt19937 random_;
  std::vector<std::string> directories_{""};
  std::vector<std::string> files_;
};

struct Tree {
  TemporaryDirectory directory;
  std::string from = directory.path() + "/from";
  std::string to = directory.path() + "/to";
  Tree() {
    base::make_directories(from, 0755);
    base::make_directories(to, 0755);
    REQUIRE(lchown(from.c_str(), kDiskFirstId, kDiskFirstId) == 0);
  }
  void sparse_file(const std::string& path) const {
    const base::Fd fd = base::open_file(from + "/" + path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    REQUIRE(ftruncate(fd.get(), kHole) == 0);
    REQUIRE(pwrite(fd.get(), "y\n", 2, kHole) == 2);
    REQUIRE(fchown(fd.get(), kDiskFirstId, kDiskFirstId) == 0);
  }
  void sparse_directory(const std::string& path) const {
    REQUIRE(mkdir((from + "/" + path).c_str(), 0755) == 0);
    REQUIRE(lchown((from + "/" + path).c_str(), kDiskFirstId, kDiskFirstId) == 0);
  }
  void round_trip() const {
    const TreeManifest before(from);
    LayerPart part;
    part.prefix = "layers/0/tree";
    part.uppers = {from};
    part.disk_first_id = kDiskFirstId;
    ArchiveFacts facts;
    const std::string bytes = archive_part(part, &facts);
    CHECK(restore_part(bytes, to).digest == facts.digest);
    CHECK(before.lines == TreeManifest(to).lines);
  }
};

}  // namespace

TEST_CASE("a sparse file survives with a path of any length", "[archive][model]") {
  const Tree tree;
  // Below "layers/0/tree/": names of any length, in directories of any length, with data before and
  // after a hole.
  for (size_t bytes = 90; bytes <= 255; ++bytes) {
    const std::string name(bytes, 'n');
    tree.sparse_file(name);
    tree.sparse_directory("d" + name.substr(1));
    tree.sparse_file("d" + name.substr(1) + "/x");
    tree.sparse_file("d" + name.substr(1) + "/" + name);
  }
  tree.round_trip();
}

TEST_CASE("a restored tree equals the archived one", "[archive][model]") {
  const char* longer = getenv("MOORAGE_TEST_LONG");
  const unsigned seeds = longer && *longer == '1' ? 1000 : 12;
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    INFO("seed " << seed);
    const Tree tree;
    Grower(tree.from, seed).grow(60);
    tree.round_trip();
  }
}

TEST_CASE("too many attributes are refused with the name of the file", "[archive]") {
  ArchiveEntry entry;
  entry.path = "layers/0/tree/many";
  for (int n = 0; n < 20; ++n) {
    entry.attributes["user.n" + std::to_string(n)] = std::string(60'000, 'v');
  }
  try {
    write_archive([&](ArchiveWriter& writer) { writer.begin(entry); });
    FAIL("no error was thrown");
  } catch (const base::Error& error) {
    CHECK(error.code() == base::Code::unsupported);
    CHECK(error.message().find("layers/0/tree/many has") == 0);
  }
}
