// Hostile or damaged delta packs are refused.
#include "packs/delta_pack.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "packs/tar_fixture.h"
#include "packs/tree_restorer.h"

using namespace moorage;
using namespace moorage::packs;

namespace fs = std::filesystem;

namespace {

constexpr uint32_t kIds = 65537;

base::Fd file_of(const std::string& bytes) {
  base::Fd file = unnamed_file();
  base::write_all(file.get(), bytes);
  return file;
}

std::string pack_of(const std::function<void(PackWriter&)>& fill) {
  std::string bytes;
  PackWriter writer([&](std::string_view piece) { bytes += piece; });
  fill(writer);
  writer.finish();
  return bytes;
}

// The error for a pack restored into a tree beside a victim.
std::string refusal(const std::function<void(PackWriter&)>& fill, uint32_t ids = kIds) {
  TemporaryDirectory directory;
  const std::string top = directory.path() + "/top";
  fs::create_directory(top);
  base::write_file(directory.path() + "/victim", "precious");
  const TreePlaces places{{{"tree", top}}, 0, ids, {}};
  TreeRestorer restorer(places);
  const PackReader reader(file_of(pack_of(fill)));
  reader.verify();
  std::string said;
  try {
    reader.read_changes(restorer);
    restorer.finish();
  } catch (const base::Error& error) {
    CHECK(error.code() == base::Code::corrupted);
    said = error.message();
  }
  CHECK(base::read_file(directory.path() + "/victim") == "precious");
  CHECK(fs::is_directory(top));
  return said;
}

Node entry(const std::string& path, NodeType type = NodeType::directory) {
  Node made;
  made.path = path;
  made.type = type;
  made.mode = 0700;
  return made;
}

}  // namespace

TEST_CASE("no pack leads out of its tree") {
  for (const std::string path : {"tree/../victim", "../victim", "/victim", "tree//x", "tree/./x",
                                 "", "tree/", "other/x", "tree/a/../../victim"}) {
    INFO(path);
    CHECK_FALSE(refusal([&](PackWriter& pack) { pack.entry(entry(path)); }).empty());
    CHECK_FALSE(refusal([&](PackWriter& pack) { pack.removal(path); }).empty());
    CHECK_FALSE(refusal([&](PackWriter& pack) {
                  pack.growth(path);
                  pack.end_pieces();
                }).empty());
  }
  const auto link = [](PackWriter& pack, const std::string& target) {
    Node made = entry("tree/link", NodeType::symlink);
    made.target = target;
    pack.entry(made);
  };
  const auto through = [&](const std::function<void(PackWriter&)>& use) {
    return refusal([&](PackWriter& pack) {
      link(pack, "..");
      use(pack);
    });
  };
  CHECK_FALSE(through([&](PackWriter& pack) { pack.entry(entry("tree/link/victim")); }).empty());
  CHECK_FALSE(through([&](PackWriter& pack) { pack.removal("tree/link/victim"); }).empty());
  CHECK_FALSE(through([&](PackWriter& pack) {
                pack.growth("tree/link");
                pack.end_pieces();
              }).empty());
  CHECK_FALSE(through([&](PackWriter& pack) {
                Node made = entry("tree/name", NodeType::hard_link);
                made.target = "tree/link/victim";
                pack.entry(made);
              }).empty());
  CHECK(refusal([&](PackWriter& pack) { link(pack, "/etc/passwd"); }).empty());  // never followed
}

TEST_CASE("a directory with directories in it gives way to a file") {
  CHECK(refusal([&](PackWriter& pack) {
          for (const char* path : {"tree/a", "tree/a/b", "tree/a/b/c"}) pack.entry(entry(path));
          pack.entry(entry("tree/a", NodeType::file));
          pack.end_pieces();
        }).empty());
}

TEST_CASE("a pack is refused for owners, modes, attributes or sizes not allowed in a tree") {
  const auto with = [](const std::function<void(Node&)>& change, uint32_t ids = kIds) {
    return refusal(
        [&](PackWriter& pack) {
          Node made = entry("tree/x");
          change(made);
          pack.entry(made);
        },
        ids);
  };
  CHECK(with([](Node&) {}).empty());
  CHECK_FALSE(with([](Node& made) { made.uid = kIds; }).empty());
  CHECK_FALSE(with([](Node& made) { made.gid = 0xffffffff; }).empty());
  CHECK_FALSE(with([](Node& made) { made.uid = 1; }, 0).empty());
  CHECK_FALSE(with([](Node& made) { made.mode = 04755; }, 0).empty());
  CHECK_FALSE(with([](Node& made) { made.type = NodeType::symlink; }, 0).empty());
  for (const char* name : {"trusted.overlay.metacopy", "security.selinux", "trusted.x", "system.y"})
    CHECK_FALSE(with([&](Node& made) { made.attributes[name] = "x"; }).empty());
  const auto write = [](uint64_t size, uint64_t offset) {
    return refusal([&](PackWriter& pack) {
      Node made = entry("tree/x", NodeType::file);
      made.size = size;
      pack.entry(made);
      pack.piece(offset, "abc");
      pack.end_pieces();
    });
  };
  CHECK(write(3, 0).empty());
  CHECK_FALSE(write(3, 1).empty());
  CHECK_FALSE(write(3, UINT64_MAX - 1).empty());
}

TEST_CASE("a flipped bit anywhere in a pack is found before anything is restored") {
  const std::string pack = pack_of([](PackWriter& writer) {
    writer.entry(entry("tree"));
    for (int i = 0; i < 20; ++i) writer.entry(entry("tree/" + std::to_string(i)));
    writer.list("x");
  });
  const auto is_sound = [](const std::string& bytes) {
    try {
      PackReader(file_of(bytes)).verify();
      return true;
    } catch (const base::Error& error) {
      CHECK(error.code() == base::Code::corrupted);
      return false;
    }
  };
  CHECK(is_sound(pack));
  size_t taken = 0;
  for (size_t at = 0; at < pack.size(); ++at) {
    std::string flipped = pack;
    flipped[at] ^= 0x10;
    // The heads of the two trailers carry no data; the frames and their hashes do.
    taken += is_sound(flipped) ? 1 : 0;
  }
  CHECK(taken <= 2 * 16);
  for (size_t size = 0; size < pack.size(); ++size) CHECK_FALSE(is_sound(pack.substr(0, size)));
  CHECK_FALSE(is_sound(pack + "x"));
}

TEST_CASE("the name of a pack survives a round trip, and other names are refused") {
  const PackName name{"ly_5", 12, true};
  CHECK(name.str() == "ly_5.12.whole");
  CHECK(parse_pack_name("ly_5.13.more")->number == 13);
  for (const char* odd : {"ly_5.12", "ly_5.+12.more", "ly_5.012.more", "ly_5.12.less", ".1.more",
                          "ly_5.12.more.new", "a.b.1.more", "ly_5.99999999999999999999.more"})
    CHECK_FALSE(parse_pack_name(odd));
}
