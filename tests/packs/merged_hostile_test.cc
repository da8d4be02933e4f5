// Packs of merged changes from a hostile sender: each rule refuses, and nothing outside changes.
#include "base/little_endian.h"
#include "packs/merged_fixture.h"

using namespace moorage;
using namespace moorage::packs;

namespace {

std::string refusal(const std::string& pack, const MergedApplier::Options& options = {},
                    InsideOwners owners = {}) {
  Target target;
  target.root.owners = owners;
  std::string said;
  try {
    apply_to(target.root, pack, options);
  } catch (const base::Error& error) {
    CHECK(error.code() == base::Code::corrupted);
    said = error.message();
  }
  CHECK(base::read_file(target.directory.path() + "/victim") == "precious");
  CHECK(base::list_directory(target.directory.path()).size() == 2);
  return said;
}

std::string refusal_of(const Node& entry, const MergedApplier::Options& options = {}) {
  return refusal(pack_of([&](PackWriter& pack) {
                   pack.entry(entry);
                   if (entry.type == NodeType::file) pack.end_pieces();
                 }),
                 options);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Written without the writer, which would take seconds.
std::string ten_million_removals() {
  constexpr int kTimes = 1000;
  const std::string path = "tree/nothing";
  std::string change = "r";
  base::append_number(change, static_cast<uint32_t>(path.size()));
  change += path;
  std::string many;
  for (int n = 0; n < 10'000; ++n) many += change;
  std::string bytes;
  const auto frame = [&](int times, const std::string& last) {
    Compressor compressor(1, 1, [&](std::string_view piece) { bytes += piece; });
    for (int n = 0; n < times; ++n) compressor.add(many);
    compressor.add(last);
    return compressor.finish().bytes;
  };
  const uint64_t changes_bytes = frame(kTimes, "z");
  const uint64_t list_bytes = frame(0, "");
  bytes += "moorage pack 1\n";
  base::append_number(bytes, changes_bytes);
  base::append_number(bytes, list_bytes);
  return bytes;
}

}  // namespace

TEST_CASE("a path that leads out of the tree, or through a link, is refused") {
  const std::string deep = [] {
    std::string path = "tree";
    for (int n = 0; n < 1000; ++n) path += "/d";
    return path;
  }();
  for (const std::string& path :
       {std::string("tree/../victim"), std::string("/etc/x"), std::string("tree//x"),
        std::string("tree/./x"), std::string("tree/"), std::string(""), std::string(".."),
        std::string("other/x"), std::string("tree/out/victim"), std::string("tree/dir/far/victim"),
        std::string("tree/missing/x"), std::string("tree/dir/file/x"),
        "tree/" + std::string(256, 'n'), "tree/" + std::string(1, '\0') + "x", deep,
        "tree/" + std::string(100'000, 'x')}) {
    INFO(base::to_hex(path.substr(0, 40)));
    for (const NodeType type : {NodeType::directory, NodeType::file, NodeType::symlink,
                                NodeType::fifo, NodeType::socket}) {
      Node entry = node(path, type);
      if (type == NodeType::symlink) entry.target = "x";
      CHECK(refusal_of(entry) != "");
    }
    Node link = node("tree/link", NodeType::hard_link);
    link.target = path;
    CHECK(refusal_of(link) != "");
  }
}

TEST_CASE("a removal that leads out of the tree is refused, one of a missing entry does nothing") {
  for (const std::string path : {"tree", "tree/..", "tree/../victim", "", "home/x", "tree/a//b"}) {
    INFO(path);
    CHECK(refusal(pack_of([&](PackWriter& pack) { pack.removal(path); })) != "");
  }
  for (const std::string path : {"tree/missing", "tree/missing/x", "tree/out/victim",
                                 "tree/dir/far/victim", "tree/dir/file/x"}) {
    INFO(path);
    CHECK(refusal(pack_of([&](PackWriter& pack) { pack.removal(path); })) == "");
  }
}

TEST_CASE("devices, other owners, invalid modes, sizes and targets are refused") {
  for (const NodeType type :
       {NodeType::whiteout, NodeType::character_device, NodeType::block_device})
    CHECK(refusal_of(node("tree/x", type)) != "");
  CHECK(has(refusal_of(node("tree/x", NodeType::whiteout)), "device"));
  Node entry = node("tree/x", NodeType::file);
  entry.uid = 65536;
  CHECK(has(refusal_of(entry), "owner"));
  entry.uid = 0xffffffff;
  CHECK(has(refusal_of(entry), "owner"));
  entry.uid = 0;
  entry.mode = 0100644;
  CHECK(has(refusal_of(entry), "mode"));
  entry.mode = 0644;
  entry.size = 1ULL << 63;
  CHECK(has(refusal_of(entry), "size"));
  entry.size = (1ULL << 63) - 1;
  CHECK(refusal_of(entry) != "");  // larger than the file system allows
  for (const std::string& target :
       {std::string(), std::string(5000, 't'), std::string("a\0b", 3)}) {
    Node link = node("tree/x", NodeType::symlink);
    link.target = target;
    CHECK(has(refusal_of(link), "target"));
  }
  CHECK(has(refusal_of(node("tree", NodeType::file)), "top"));
}

TEST_CASE("attributes that no sandbox can set are refused") {
  const std::string host_capability(
      "\x01\x00\x00\x02\x20\x00\x00\x00\x00\x00\x00\x00"
      "\x00\x00\x00\x00\x00\x00\x00\x00",
      20);
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"trusted.overlay.opaque", "y"},
                                          {"trusted.overlay.redirect", "/etc"},
                                          {"user.overlay.opaque", "y"},
                                          {"user.overlay.whiteout", "y"},
                                          {"security.selinux", "x"},
                                          {"security.capability", host_capability},
                                          {"system.posix_acl_access", "junk"},
                                          {"user.nul" + std::string(1, '\0'), "x"},
                                          {"", "x"}}) {
    for (const NodeType type : {NodeType::file, NodeType::directory, NodeType::symlink}) {
      Node entry = node("tree/x", type);
      entry.target = type == NodeType::symlink ? "t" : "";
      entry.attributes[name] = value;
      INFO(name);
      CHECK(has(refusal_of(entry), "attribute"));
    }
  }
  Node link = node("tree/x", NodeType::symlink);
  link.target = "t";
  link.attributes["user.x"] = "y";
  CHECK(has(refusal_of(link), "attribute"));
}

TEST_CASE("data beyond the size, out of order or without an end is refused") {
  const auto with = [](uint64_t size, const std::vector<std::pair<uint64_t, std::string>>& pieces) {
    return pack_of([&](PackWriter& pack) {
      Node file = node("tree/x", NodeType::file);
      file.size = size;
      pack.entry(file);
      for (const auto& [offset, bytes] : pieces) pack.piece(offset, bytes);
      pack.end_pieces();
    });
  };
  CHECK(has(refusal(with(3, {{0, "four"}})), "exceeds"));
  CHECK(has(refusal(with(3, {{3, "x"}})), "exceeds"));
  CHECK(has(refusal(with(3, {{uint64_t{1} << 62, "x"}})), "exceeds"));
  CHECK(has(refusal(with(9, {{4, "x"}, {0, "y"}})), "order"));
  CHECK(has(refusal(with(9, {{0, "xx"}, {1, "y"}})), "order"));
  CHECK(refusal(with(9, {{0, "x"}, {8, "y"}})) == "");
  CHECK(has(
      refusal(pack_of([](PackWriter& pack) { pack.growth("tree/dir/file"), pack.end_pieces(); })),
      "grow"));
}

TEST_CASE("a pack beyond the limits is refused") {
  MergedApplier::Options options;
  options.limits.entries = 1000;
  CHECK(has(refusal(ten_million_removals(), options), "more than 1000 changes"));
  options.limits.bytes = 100;
  CHECK(has(refusal(pack_of([](PackWriter& pack) {
                      for (int n = 0; n < 3; ++n) put_file(pack, "tree/x", std::string(40, 'x'));
                    }),
                    options),
            "more than 100 bytes"));
  options.limits.depth = 3;
  CHECK(has(
      refusal(pack_of([](PackWriter& pack) {
                for (const std::string path : {"tree/a", "tree/a/b", "tree/a/b/c", "tree/a/b/c/d"})
                  pack.entry(node(path));
              }),
              options),
      "deep"));
  options.allowed = [](std::string_view path) { return path.starts_with("tree/dir"); };
  CHECK(has(refusal_of(node("tree/else"), options), "not allowed"));
}

TEST_CASE("a hard link leads only to an entry of the same tree that exists") {
  Node link = node("tree/link", NodeType::hard_link);
  for (const std::string target : {"tree/missing", "tree/dir", "tree", "tree/out/victim"}) {
    link.target = target;
    CHECK(refusal_of(link) != "");
  }
  link.target = "tree/dir/file";
  CHECK(refusal_of(link) == "");
  link.path = "tree/dir/file";  // to itself
  CHECK(refusal_of(link) == "");
}

TEST_CASE("nothing of a damaged pack is applied, and no damage of a stream is accepted") {
  const std::string good = pack_of([](PackWriter& pack) {
    pack.removal("tree/dir");
    put_file(pack, "tree/new", std::string(50'000, 'n'));
  });
  CHECK(refusal(good) == "");
  for (size_t at = 0; at < good.size(); at += 1 + good.size() / 60) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    Target target;
    try {
      apply_to(target.root, bad);
      FAIL("accepted a flipped bit at " << at);
    } catch (const base::Error& error) {
      CHECK(error.code() == base::Code::corrupted);
    }
    CHECK(base::read_file(target.top + "/dir/file") == "old");
    const MergedApplier::Options options{.roots = {target.root}};
    MergedApplier applier(options);
    CHECK_THROWS_AS(read_pack_stream(from_memory(bad), applier), base::Error);
  }
  for (size_t size = 0; size < good.size(); size += 1 + good.size() / 20) {
    const std::string cut = good.substr(0, size);
    Target target;
    const MergedApplier::Options options{.roots = {target.root}};
    MergedApplier applier(options);
    CHECK_THROWS_AS(read_pack_stream(from_memory(cut), applier), base::Error);
  }
}
